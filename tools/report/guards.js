// What the plan of the recording takes for granted.

function guardsPanel(recording) {
  const {guards, differs_from: differs} = recording.data;
  if (guards.length === 0) return [note('No plan is made from this recording, so that nothing guards it.')];
  const grid = new Grid({
    label: 'Guards', count: guards.length, height: 520,
    columns: [
      {title: 'kind', width: '11rem', text: (row) => guards[row].kind, key: (row) => guards[row].kind},
      {title: 'path', width: 'minmax(16rem, 2fr)', text: (row) => guards[row].path, key: (row) => guards[row].path},
      {title: 'expected', width: 'minmax(12rem, 2fr)', text: (row) => guards[row].expected,
        key: (row) => guards[row].expected},
      {title: 'or', width: 'minmax(9rem, 1fr)', text: (row) => guards[row].also_holds || ''},
      {title: 'also at', width: 'minmax(10rem, 1fr)', text: (row) => guards[row].aliases.join(', ')},
    ],
  });
  const search = searchField('Search guards', grid, (row) =>
    `${guards[row].kind} ${guards[row].path} ${guards[row].expected} ${guards[row].aliases.join(' ')}`.toLowerCase());
  return [
    differs && [el('h2', {}, `In what it differs from recording ${differs.recording}`),
      differs.differences.length
        ? smallTable('Guards of two variants', ['kind', 'path', 'there', 'here'],
          differs.differences.map((item) => [item.kind, item.path, item.expected, item.found]))
        : note('In no guard that stands in a recording.')],
    el('h2', {}, 'Guards'),
    note('The plan runs while all of these hold. “or” is what formulas follow, so that it may change.'),
    el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element,
  ];
}
