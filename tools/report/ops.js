// The table of all ops.

function opColumns(recording) {
  const part = (op) => recording.part(op);
  const time = {title: 'time', width: '6.5rem', numeric: true, text: (op) => timeText(recording.ops.ns[op]),
    key: (op) => recording.ops.ns[op]};
  return [
    {title: 'op', width: '4rem', numeric: true, text: (op) => String(op), key: (op) => op},
    {title: 'part', width: '6.5rem', text: part, cell: (op) => badge(part(op), part(op)),
      key: (op) => recording.ops.part[op]},
    {title: 'operator', width: 'minmax(12rem, 1.2fr)', text: (op) => recording.operator(op).name,
      key: (op) => recording.operator(op).name},
    recording.hasTimes() && time,
    {title: 'module call', width: 'minmax(12rem, 1.2fr)', text: (op) => recording.call(op),
      key: (op) => recording.call(op)},
    {title: 'arguments', width: 'minmax(18rem, 3fr)', text: (op) => recording.inputWords(op)},
    {title: 'results', width: 'minmax(11rem, 1.4fr)', text: (op) => recording.outputWords(op)},
    {title: 'line', width: 'minmax(8rem, 0.7fr)', text: (op) => recording.scope(op),
      cell: (op) => recording.line(op), key: (op) => recording.line(op)},
  ].filter(Boolean);
}

function opsPanel(recording) {
  const detail = el('div', {class: 'place-of-detail'},
    note('Choose an op to see its arguments by name, where their tensors come from and what uses its results.'));
  const grid = new Grid({
    label: 'Ops', columns: opColumns(recording), count: recording.count, height: 520,
    onOpen: (op) => replaceAll(detail, opDetail(recording, op)),
  });
  const parts = new Set(kParts);
  const search = searchField('Search ops', grid, (op) => recording.searchText(op),
    (op) => parts.has(recording.part(op)));
  const boxes = kParts.map((part) => el('label', {class: 'box'}, el('input', {
    type: 'checkbox', checked: true,
    onchange: (event) => {
      if (event.target.checked) parts.add(part); else parts.delete(part);
      search.refresh();
    },
  }), part));
  const panel = el('div', {}, el('div', {class: 'tools', role: 'search'}, search.input, boxes, search.outcome),
    grid.element, detail);
  panel.grid = grid;
  panel.search = search;
  panel.open = (op) => {
    search.input.value = '';
    search.refresh();
    grid.openRow(op);
  };
  return [panel];
}
