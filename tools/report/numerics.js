// Ops of two recordings that left other bits.

function numericsGrid(numerics, title) {
  const {ops} = numerics;
  const status = (row) => (ops[row].noisy ? 'noisy' : ops[row].status);
  const call = (row) => ops[row].call + (ops[row].phase === 'backward' ? ' backward' : '');
  const grid = new Grid({
    label: `Ops that left other bits: ${title}`, count: ops.length, height: 300,
    rowClass: (row) => (status(row) === 'origin' ? 'warn' : ''),
    columns: [
      {title: 'is', width: '7rem', text: status, key: status,
        cell: (row) => badge(status(row) === 'origin' ? 'bad' : 'quiet', status(row))},
      {title: 'A', width: '4.5rem', numeric: true, text: (row) => String(ops[row].a), key: (row) => ops[row].a},
      {title: 'operator', width: 'minmax(12rem, 1.2fr)', text: (row) => ops[row].operator, key: (row) => ops[row].operator},
      {title: 'module call', width: 'minmax(10rem, 1fr)', text: call, key: call},
      {title: 'line', width: 'minmax(8rem, 0.7fr)', text: (row) => ops[row].scope,
        cell: (row) => ops[row].line, key: (row) => ops[row].line},
      {title: 'because', width: 'minmax(18rem, 2fr)', text: (row) => ops[row].cause, key: (row) => ops[row].cause},
    ],
  });
  const search = searchField(`Search ops that left other bits: ${title}`, grid, (row) =>
    `${status(row)} ${ops[row].a} ${ops[row].operator} ${call(row)} ${ops[row].scope} ${ops[row].cause}`.toLowerCase());
  return [el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function numericsParts(numerics, title) {
  if (numerics.not_compared) return note(`What ops left was not compared: ${numerics.not_compared}.`);
  const differ = numerics.ops.length + numerics.left_out;
  if (differ === 0 && !numerics.entered) return note(`${countText(numerics.compared, 'op')} left the same bits.`);
  return [
    el('h3', {}, 'What ops left'),
    note(`${countText(numerics.compared, 'op')} compared: ${countText(numerics.origins, 'origin')}, ` +
      `${countText(numerics.receivers, 'receiver')}, ${numberText(numerics.unknown)} unknown, ` +
      `${numberText(numerics.noisy)} noisy. An origin took equal inputs and left other bits, a receiver took what differs.`),
    numerics.entered && note(`Entered with other bits: ${numerics.entered}.`),
    differ > 0 && numericsGrid(numerics, title),
    numerics.left_out > 0 && note(`And ${numberText(numerics.left_out)} more, which are not in this page.`),
  ];
}
