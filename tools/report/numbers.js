// Scalars of the host: what they follow from, and where they enter the step.

function siteText(recording, site) {
  if (site.op < 0) return `content of buffer ${site.buffer}`;
  const operator = recording.operator(site.op);
  const item = site.item < 0 ? '' : `[${site.item}]`;
  return `op ${site.op} ${operator.name}: ${operator.arguments[site.argument] || site.argument}${item}`;
}

function sitesGrid(recording, numbers) {
  const sites = numbers.sites;
  const grid = new Grid({
    label: 'Scalars', count: sites.length, height: 420,
    onOpen: (row) => { if (sites[row].op >= 0) location.hash = `ops=${sites[row].op}`; },
    columns: [
      {title: 'where it enters', width: 'minmax(18rem, 2fr)', text: (row) => siteText(recording, sites[row]),
        key: (row) => sites[row].op},
      {title: 'recorded', width: 'minmax(11rem, 1fr)', text: (row) => sites[row].value, key: (row) => sites[row].value},
      {title: 'formula', width: 'minmax(24rem, 4fr)', text: (row) => numbers.formulas[sites[row].formula],
        key: (row) => sites[row].formula},
    ],
  });
  const search = searchField('Search scalars', grid,
    (row) => `${siteText(recording, sites[row])} ${numbers.formulas[sites[row].formula]}`.toLowerCase());
  return [el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function readsTable(recording, numbers) {
  const uses = {checked: 'must be the recorded value', free: 'any value', looked_at: 'any value: for looking at'};
  return smallTable('Values that ops give the host', ['op', 'operator', 'in a replay'],
    numbers.reads.map((read) => [opLink(read.op), recording.operator(read.op).name, uses[read.use] || read.use]));
}

function numbersPanel(recording) {
  const {numbers} = recording.data;
  const formula = (index) => (index < 0 ? '' : numbers.formulas[index]);
  return [
    el('h2', {}, 'Scalars with a formula'),
    numbers.sites.length
      ? [note('A replay computes these anew from what stands in their formulas; every other scalar is as recorded.'),
        sitesGrid(recording, numbers)]
      : note('Every scalar is as recorded.'),
    numbers.predicates.length > 0 && [el('h2', {}, 'Conditions'), smallTable('The recording holds while',
      ['formula', 'is'], numbers.predicates.map((predicate) =>
        [formula(predicate.formula), predicate.is_nonzero ? 'not zero' : 'zero']))],
    numbers.leaves.length > 0 && [el('h2', {}, 'What formulas follow from'), smallTable('Leaves', ['kind', 'path'],
      numbers.leaves.map((leaf) => [leaf.kind.replace('_', ' '), leaf.path]))],
    numbers.advances.length > 0 && [el('h2', {}, 'Counts that the step advances'), smallTable('Advances',
      ['path', 'by'], numbers.advances.map((advance) => [advance.path, String(advance.by)]), [1])],
    numbers.reads.length > 0 && [el('h2', {}, 'Host reads'), readsTable(recording, numbers)],
    numbers.numbers.length > 0 && [el('h2', {}, 'Numbers that the step returns'), smallTable('Numbers',
      ['recorded', 'read by', 'formula'], numbers.numbers.map((number) =>
        [number.value, opLink(number.op), formula(number.formula)]))],
  ];
}
