// How long the ops of modules took on both sides.

function timesVerdict(times) {
  if (times.differs) return 'differs';
  return times.comparable ? 'within the noise' : 'too few to compare';
}

function bandWords(times, side) {
  const [from, to] = times.band === 'middle_half' ? ['lower_quartile_ns', 'upper_quartile_ns'] : ['least_ns', 'most_ns'];
  return `${timeText(times[side][from])} to ${timeText(times[side][to])}`;
}

function timesGrid(step) {
  const rows = [{module: 'all ops', ...step.times.step},
    ...step.times.modules.map((times) => ({...times, module: times.module || 'no module'}))];
  const median = (row, side) => rows[row][side].median_ns;
  const change = (row) => median(row, 'b') - median(row, 'a');
  const verdict = (row) => timesVerdict(rows[row]);
  const column = (title, side) => ({title, width: '7.5rem', numeric: true, text: (row) => timeText(median(row, side)),
    key: (row) => median(row, side)});
  const band = (title, side) => ({title, width: 'minmax(11rem, 1fr)', text: (row) => bandWords(rows[row], side)});
  const grid = new Grid({
    label: `Times of ops by module: ${step.name}`, count: rows.length, height: 300,
    rowClass: (row) => (rows[row].differs ? 'warn' : ''),
    columns: [
      {title: 'ops of', width: 'minmax(12rem, 1.5fr)', text: (row) => rows[row].module, key: (row) => rows[row].module},
      column('in A', 'a'), column('in B', 'b'),
      {title: 'change', width: '8rem', numeric: true, key: change,
        text: (row) => `${change(row) < 0 ? '−' : '+'}${timeText(Math.abs(change(row)))}`},
      band('A within', 'a'), band('B within', 'b'),
      {title: 'recordings', width: '7rem', text: (row) => `${rows[row].a.recordings} and ${rows[row].b.recordings}`},
      {title: 'verdict', width: '10rem', text: verdict, key: verdict,
        cell: (row) => badge(rows[row].differs ? 'bad' : 'quiet', verdict(row))},
    ],
  });
  const search = searchField(`Search times: ${step.name}`, grid, (row) => `${rows[row].module} ${verdict(row)}`.toLowerCase());
  return [el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function timesParts(step) {
  if (step.times_only_in) return note(`Only ${step.times_only_in.toUpperCase()} says how long ops of ${step.name} took.`);
  if (!step.times) return null;
  const times = step.times.step;
  return [
    el('h2', {}, `${step.name}: time`),
    note('Medians over the recordings. They differ where each lies outside the ' +
      `${times.band === 'middle_half' ? 'middle half' : 'times'} of the other side by more than a microsecond.`),
    timesGrid(step)];
}
