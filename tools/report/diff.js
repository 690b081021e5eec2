// How a second trace differs from this one.

function countsWords(counts) {
  const told = Object.entries(counts).filter(([, count]) => count > 0);
  return told.length ? told.map(([section, count]) => `${section} ${count}`).join(', ') : 'nothing that is compared';
}

// Memory, place and time are told, and make nothing differ, as in `steptape diff`.
function diffSummary(data) {
  const {differs, counts} = data.diff;
  const words = `${data.b.name} ${differs ? 'differs from' : 'is equal to'} ${data.a.name}`;
  const link = location.hash !== '#diff' && el('a', {href: '#diff'}, 'See how');
  if (Object.values(counts).every((count) => count === 0)) {
    return el('p', {class: 'verdict good'}, `${words} in all that is compared.`);
  }
  return el('p', {class: `verdict ${differs ? 'bad' : 'good'}`},
    `${words} ${differs ? 'in:' : 'but for'} ${countsWords(counts)}. `, link);
}

const kFewFindings = 16;  // so many stand in a table of their own height

function findingsTable(caption, findings) {
  if (findings.length === 0) return null;
  if (findings.length > kFewFindings) return findingsGrid(caption, findings);
  return smallTable(caption, ['section', 'path', 'in A', 'in B'], findings.map((finding) =>
    [finding.section, finding.path, el('span', {class: 'from'}, finding.expected), el('span', {class: 'to'}, finding.found)]));
}

function findingsGrid(caption, findings) {
  const column = (title, key, width) => ({title, width, text: (row) => findings[row][key], key: (row) => findings[row][key]});
  const grid = new Grid({
    label: caption, count: findings.length, height: 300,
    columns: [column('section', 'section', '8rem'), column('path', 'path', 'minmax(16rem, 1.5fr)'),
      column('in A', 'expected', 'minmax(14rem, 2fr)'), column('in B', 'found', 'minmax(14rem, 2fr)')],
  });
  const search = searchField(`Search: ${caption}`, grid,
    (row) => Object.values(findings[row]).join(' ').toLowerCase());
  return [el('h3', {}, caption), el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function statsTable(stats) {
  const edited = stats.filter((stat) => stat.removed + stat.inserted + stat.moved + stat.changed > 0);
  if (edited.length === 0) return null;
  return smallTable('Edits by module', ['module', 'ops in A', 'ops in B', 'removed', 'inserted', 'moved', 'changed'],
    edited.map((stat) => [stat.module || 'no module',
      ...[stat.ops_a, stat.ops_b, stat.removed, stat.inserted, stat.moved, stat.changed].map(numberText)]),
    [1, 2, 3, 4, 5, 6]);
}

function howMatched(by) {
  return {module_call: 'the same call of the same module', sequence: 'their order between neighbours',
    content: 'what they do, though elsewhere in the step'}[by] || by;
}

function editDetail(rows, row, recording) {
  const {kind, item} = rows.rows[row];
  const side = (name) => (item[name] ? `op ${item[name].op} ${item[name].text}` : 'none');
  if (kind === 'same') {
    return facts([['equal', recording.text(rows.rows[row].a)], ['matched by', howMatched(item.matched_by)]]);
  }
  return el('section', {class: 'detail', 'aria-label': 'edit'},
    facts([['edit', kind], ['in A', side('a')], ['in B', side('b')],
      ['matched by', item.matched_by ? howMatched(item.matched_by) : '']]),
    item.changes && smallTable('In what they differ', ['respect', 'where', 'in A', 'in B'], item.changes.map((change) =>
      [change.aspect, change.place || 'the op', el('span', {class: 'from'}, change.expected),
        el('span', {class: 'to'}, change.found)])));
}

function sideBySide(pair, recording) {
  const rows = new DiffRows(pair.rows);
  const detail = el('div', {class: 'place-of-detail'}, note('Choose a row to see how its ops were matched.'));
  const number = (row, side) => (rows.op(row, side) < 0 ? '' : String(rows.op(row, side)));
  const cell = (side, other) => (row) => markedText(rows.text(row, side, recording),
    rows.isEdit(row) && rows.text(row, other, recording));
  const grid = new Grid({
    label: 'Ops side by side', count: rows.rows.length, height: 560, rowClass: (row) => rows.rows[row].kind,
    onOpen: (row) => {
      if (rows.rows[row].kind === 'fold') {
        rows.unfold(row);
        grid.setCount(rows.rows.length);
      } else {
        replaceAll(detail, editDetail(rows, row, recording));
      }
    },
    columns: [
      {title: 'edit', width: '6.5rem', text: (row) => rows.rows[row].kind,
        cell: (row) => `${kMarks[rows.rows[row].kind]} ${rows.isEdit(row) ? rows.rows[row].kind : ''}`},
      {title: 'A', width: '4.5rem', numeric: true, text: (row) => number(row, 'a')},
      {title: 'in A', width: 'minmax(16rem, 1fr)', text: (row) => rows.text(row, 'a', recording), cell: cell('a', 'b')},
      {title: 'B', width: '4.5rem', numeric: true, text: (row) => number(row, 'b')},
      {title: 'in B', width: 'minmax(16rem, 1fr)', text: (row) => rows.text(row, 'b', recording), cell: cell('b', 'a')},
      {title: 'module call', width: 'minmax(8rem, 12rem)', text: (row) => rows.call(row, recording)},
    ],
  });
  const step = (direction) => () => {
    const from = grid.active;
    for (let row = from + direction; row >= 0 && row < rows.rows.length; row += direction) {
      const isFirst = rows.isEdit(row) && !(row > 0 && direction > 0 && row !== from + 1 && rows.isEdit(row - 1));
      if (isFirst) return grid.openRow(row);
    }
    return false;
  };
  const all = el('label', {class: 'box'}, el('input', {type: 'checkbox', onchange: (event) => {
    rows.setAllOpen(event.target.checked);
    grid.setCount(rows.rows.length);
  }}), 'equal ops too');
  return el('div', {}, el('div', {class: 'tools'},
    el('button', {type: 'button', onclick: step(-1)}, 'previous edit'),
    el('button', {type: 'button', onclick: step(1)}, 'next edit'), all), grid.element, detail);
}

function pairParts(pair, recordings, title) {
  const edits = pair.rows.filter((row) => !row.same).length;
  return [
    note(`Paired by ${pair.paired_by}${pair.call > 0 ? ` ${pair.call}` : ''}. ${countText(pair.ops_a, 'op')} in A, ${numberText(pair.ops_b)} in B.`),
    edits ? sideBySide(pair, new Recording(recordings[pair.a])) : note('The ops are the same.'),
    statsTable(pair.modules),
    numericsParts(pair.numerics, title),
    findingsTable('Beside the ops', pair.findings)];
}

function pairSection(stepName, pair, recordings) {
  const title = `${stepName}: recording ${pair.a} of A, ${pair.b} of B`;
  if (!pair.is_beside) return el('section', {}, el('h2', {}, title), pairParts(pair, recordings, title));
  const details = el('details', {class: 'beside', ontoggle: () => {
    if (details.open && details.children.length === 1) put(details, pairParts(pair, recordings, title));
  }}, el('summary', {}, `${title}: a warm-up, no plan is made from it and what differs does not count`));
  return details;
}

function diffPanel(data) {
  const {diff} = data;
  return [
    diffSummary(data),
    facts([['A', `${data.a.name}, ${sizeText(data.a.bytes)}`], ['B', `${data.b.name}, ${sizeText(data.b.bytes)}`]]),
    findingsTable('Of the traces', diff.findings),
    diff.steps.map((step) => {
      const recordings = data.steps.find((found) => found.name === step.name).recordings;
      return [findingsTable(`Of step ${step.name}`, step.findings), timesParts(step),
        [...step.recordings].sort((x, y) => x.is_beside - y.is_beside)
          .map((pair) => pairSection(step.name, pair, recordings))];
    }),
  ];
}
