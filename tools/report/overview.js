// What a person wants to know first.

// A bar for each of `items`, [{name, value, words, kind}].
function bars(caption, items) {
  const most = Math.max(1, ...items.map((item) => item.value));
  return el('table', {class: 'bars'}, el('caption', {}, caption),
    el('tbody', {}, items.map((item) => {
      const bar = el('span', {class: `bar ${item.kind || ''}`});
      bar.style.width = `${(100 * item.value) / most}%`;
      return el('tr', {}, el('th', {scope: 'row'}, item.name),
        el('td', {class: 'track', 'aria-hidden': 'true'}, bar), el('td', {class: 'number'}, item.words));
    })));
}

function topOperators(recording, most) {
  const counts = new Map();
  for (const operator of recording.ops.operator) counts.set(operator, (counts.get(operator) || 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const items = sorted.slice(0, most).map(([operator, count]) => ({
    name: recording.data.operators[operator].name, value: count, words: numberText(count)}));
  const rest = sorted.slice(most).reduce((sum, [, count]) => sum + count, 0);
  if (rest > 0) {
    items.push({name: `${sorted.length - most} others`, value: rest, words: numberText(rest), kind: 'rest'});
  }
  return items;
}

const kStatuses = {
  warm_up: 'It created state; no plan is made from it.',
  probe: 'Recorded, not yet agreed with another recording.',
  agreed: 'Two recordings in a row agree.',
  trusted: 'Its plan gave the bits of the eager step in a trial.',
};

function card(title, value, words) {
  return el('div', {class: 'card'}, el('h3', {}, title), el('p', {class: 'big'}, value),
    el('p', {class: 'muted'}, words));
}

function overviewPanel(recording, data) {
  const {data: own} = recording;
  const peak = new Lifetimes(recording).peak();
  const captured = own.constants.reduce((sum, constant) => sum + constant.bytes, 0);
  const counts = recording.partCounts();
  const cards = el('div', {class: 'cards'},
    card('Status', own.status.replace('_', '-'), kStatuses[own.status] || ''),
    card('Ops', numberText(recording.count), `${own.operators.length} operators`),
    card('Parameters', numberText(own.elements), `elements in ${countText(own.parameters, 'tensor')}`),
    card('Peak of temporaries', sizeText(peak.bytes), recording.count ? `at op ${peak.op}` : ''),
    card('Constants', sizeText(captured), countText(own.constants.length, 'buffer')),
    card('Refusals', String(own.refusals.length),
      own.refusals.length ? 'why the step runs eagerly' : 'nothing stands against a plan'),
    recording.hasTimes() && card('Time of ops', timeText(recording.ops.ns.reduce((sum, ns) => sum + ns, 0)),
      'without what lies between them'));
  const parts = bars('Ops by part of the step',
    kParts.map((part, i) => ({name: part, value: counts[i], words: numberText(counts[i]), kind: part})));
  const roles = bars('Memory by role', own.roles.map((role) => ({
    name: role.role.replace('_', ' '), value: role.bytes,
    words: `${sizeText(role.bytes)} in ${numberText(role.buffers)}`})));
  const file = data.a;
  return [
    data.diff && diffSummary(data), cards,
    el('div', {class: 'columns'}, parts, roles, bars('Operators by count', topOperators(recording, 10))),
    el('h2', {}, 'Where it comes from'),
    facts([['file', `${file.name}, ${sizeText(file.bytes)}`],
      ['saved state', file.state.entries
        ? `${countText(file.state.entries, 'entry').replace('entrys', 'entries')}, ${sizeText(file.state.bytes)}`
        : 'none'],
      ...Object.entries(file.producer), ...Object.entries(file.run)]),
    el('h2', {}, 'Environment'),
    facts(Object.entries(file.environment)),
    el('h2', {}, 'Switches around the step'),
    facts(Object.entries(own.ambient)),
  ];
}
