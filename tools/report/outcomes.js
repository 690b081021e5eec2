// Constants that travel with the file, and why a step cannot be replayed.

function constantsPanel(recording) {
  const {constants} = recording.data;
  if (constants.length === 0) return [note('The step captured no constant.')];
  const name = (row) => constants[row].path || 'made by the host';
  const bytes = constants.reduce((sum, constant) => sum + constant.bytes, 0);
  const grid = new Grid({
    label: 'Constants', count: constants.length, height: 520,
    rowClass: (row) => (constants[row].kept ? '' : 'warn'),
    onOpen: (row) => { if (constants[row].op >= 0) location.hash = `ops=${constants[row].op}`; },
    columns: [
      {title: 'tensor', width: 'minmax(12rem, 1.5fr)', text: name, key: name},
      {title: 'bytes', width: '9rem', numeric: true, text: (row) => sizeText(constants[row].bytes),
        key: (row) => constants[row].bytes},
      {title: 'bytes are', width: '9rem', text: (row) => (constants[row].kept ? 'in the file' : 'not in the file'),
        key: (row) => constants[row].kept},
      {title: 'first read by', width: 'minmax(13rem, 1.5fr)', key: (row) => constants[row].op,
        text: (row) => (constants[row].op < 0 ? 'no op'
          : `op ${constants[row].op} ${recording.operator(constants[row].op).name}`)},
      {title: 'module', width: 'minmax(9rem, 1fr)', text: (row) => constants[row].module, key: (row) => constants[row].module},
      {title: 'line', width: 'minmax(10rem, 1.5fr)', text: (row) => constants[row].scope,
        cell: (row) => lineOf(constants[row].scope), key: (row) => lineOf(constants[row].scope)},
    ],
  });
  const search = searchField('Search constants', grid, (row) =>
    `${name(row)} ${constants[row].module} ${constants[row].scope}`.toLowerCase());
  return [
    note(`${countText(constants.length, 'buffer')}, ${sizeText(bytes)}: made outside the step or by the host, with ` +
      'equal bytes in every probe. Their bytes are in the trace, not in this page.'),
    el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element,
  ];
}

function refusalsPanel(recording) {
  const {refusals} = recording.data;
  if (refusals.length === 0) return [note('Nothing: the recorder saw nothing that a plan may not hold.')];
  return [el('ol', {class: 'refusals'}, refusals.map((refusal) => el('li', {},
    el('h3', {}, badge('bad', refusal.code), ' ', refusal.message),
    facts([['op', refusal.op_index < 0 ? refusal.op : opLink(refusal.op_index, `op ${refusal.op_index} ${refusal.op}`)],
      ['module', refusal.module], ['where', refusal.place], ['remedy', refusal.remedy]]))))];
}
