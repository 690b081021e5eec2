// Optimizers: groups, hyperparameters to the bit, and the state of each parameter.

function tensorText(tensor) {
  return tensor ? `${tensor.dtype} [${tensor.sizes.join(', ')}] ${tensor.device}` : 'undefined';
}

function stateText(item) {
  if (item.missing) return 'missing';
  return 'value' in item ? item.value : tensorText(item.tensor);
}

function stateGrid(optimizer) {
  const parameters = optimizer.parameters;
  const keys = [...new Set(parameters.flatMap((parameter) => parameter.state.map((item) => item.key)))];
  const state = (row, key) => {
    const item = parameters[row].state.find((found) => found.key === key);
    return item ? stateText(item) : 'none';
  };
  const grid = new Grid({
    label: `Parameters of ${optimizer.path}`, count: parameters.length, height: 420,
    rowClass: (row) => (parameters[row].state.some((item) => item.missing) ? 'warn' : ''),
    columns: [
      {title: 'parameter', width: 'minmax(14rem, 2fr)', text: (row) => parameters[row].path,
        key: (row) => parameters[row].path},
      {title: 'group', width: '5.5rem', numeric: true,
        text: (row) => (parameters[row].group === null ? 'none' : String(parameters[row].group)),
        key: (row) => (parameters[row].group === null ? -1 : parameters[row].group)},
      {title: 'tensor', width: 'minmax(13rem, 1fr)', text: (row) => tensorText(parameters[row].tensor)},
      ...keys.map((key) => ({title: key, width: 'minmax(11rem, 1fr)', text: (row) => state(row, key),
        key: (row) => state(row, key)})),
    ],
  });
  const search = searchField(`Search parameters of ${optimizer.path}`, grid,
    (row) => parameters[row].path.toLowerCase());
  return [el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function optimizerSection(optimizer) {
  return el('section', {},
    el('h2', {}, `${optimizer.path} `, el('span', {class: 'muted'}, optimizer.type)),
    note(optimizer.has_formulas
      ? 'Formulas follow its hyperparameters: a plan holds for any values of them.'
      : 'A plan holds for these hyperparameters alone.'),
    optimizer.groups.map((group, i) => smallTable(
      `Group ${i}: ${countText(group.parameters.length, 'parameter')}`,
      ['hyperparameter', 'type', 'value', 'IEEE bits'],
      group.hyperparameters.map((item) => [item.name, item.type, item.value, item.bits || '']))),
    el('h3', {}, 'State'), stateGrid(optimizer));
}

function optimizerPanel(recording) {
  const optimizers = recording.data.optimizers;
  if (optimizers.length === 0) return [note('No optimizer is tracked.')];
  return optimizers.map(optimizerSection);
}
