// The tree of modules, and the order in which the step calls them.

function callsWords(module) {
  if (module.calls.length === 0) return 'never called';
  const first = module.calls.slice(0, 6).map((call) => `#${call.order}`).join(' ');
  return `${countText(module.calls.length, 'call')}: ${first}${module.calls.length > 6 ? ' …' : ''}`;
}

function opsWords(ops) {
  return `${numberText(ops.forward)} forward, ${numberText(ops.backward)} backward`;
}

// Modules by the path of what holds them.
function childrenOf(modules) {
  const paths = new Set(modules.map((module) => module.path));
  const children = new Map();
  for (const module of modules) {
    let parent = module.parent;
    if (!paths.has(parent)) parent = '';
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(module);
  }
  return children;
}

function moduleNode(module, children, depth, times) {
  const below = children.get(module.path) || [];
  const name = module.parent && module.path.startsWith(`${module.parent}.`)
    ? module.path.slice(module.parent.length + 1) : module.path;
  const options = Object.entries(module.options).map(([key, value]) => `${key}=${value}`).join(', ');
  const time = times && times.get(module.path);
  const node = el('details', {class: 'module', open: depth < 3},
    el('summary', {}, el('b', {}, name), ' ', el('span', {class: 'muted'}, module.type), ' ',
      badge('calls', callsWords(module)), ' ',
      badge('count', `${numberText(module.ops_below.forward + module.ops_below.backward)} ops`),
      time && [' ', badge('time', timeText(time.below))],
      module.training ? '' : [' ', badge('quiet', 'evaluating')]),
    facts([['path', module.path], ['also', module.aliases.join(', ')], ['options', options],
      ['own ops', opsWords(module.ops)],
      ['with those below', below.length ? opsWords(module.ops_below) : ''],
      ['time of own ops', time ? timeText(time.own) : ''],
      ['with those below', time && below.length ? timeText(time.below) : ''],
      ['reads', module.reads.join(', ')], ['writes', module.writes.join(', ')]]),
    below.map((child) => moduleNode(child, children, depth + 1, times)));
  return node;
}

function accessGrid(modules) {
  const calls = modules.flatMap((module) => module.calls.map((call) => ({...call, type: module.type})));
  calls.sort((a, b) => a.order - b.order);
  const grid = new Grid({
    label: 'Module calls in their order', count: calls.length, height: 360,
    onOpen: (row) => { location.hash = `ops=${calls[row].first_op}`; },
    columns: [
      {title: '#', width: '5rem', numeric: true, text: (row) => String(calls[row].order),
        key: (row) => calls[row].order},
      {title: 'call', width: 'minmax(14rem, 2fr)', text: (row) => calls[row].path, key: (row) => calls[row].path},
      {title: 'type', width: 'minmax(14rem, 2fr)', text: (row) => calls[row].type, key: (row) => calls[row].type},
      {title: 'from op', width: '7rem', numeric: true, text: (row) => String(calls[row].first_op),
        key: (row) => calls[row].first_op},
      {title: 'forward', width: '7rem', numeric: true, text: (row) => numberText(calls[row].ops.forward),
        key: (row) => calls[row].ops.forward},
      {title: 'backward', width: '7rem', numeric: true, text: (row) => numberText(calls[row].ops.backward),
        key: (row) => calls[row].ops.backward},
    ],
  });
  const search = searchField('Search module calls', grid,
    (row) => `${calls[row].path} ${calls[row].type}`.toLowerCase());
  return [el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function modulesPanel(recording) {
  const modules = recording.data.modules;
  if (modules.length === 0) return [note('The step calls no module that the trace knows.')];
  const children = childrenOf(modules);
  const times = recording.hasTimes() && recording.moduleTimes();
  return [
    el('h2', {}, 'Tree'),
    note('#3 is the third call of the step. Ops of a module are those that it issued itself.'),
    (children.get('') || []).map((module) => moduleNode(module, children, 0, times)),
    el('h2', {}, 'Order of calls'), accessGrid(modules),
  ];
}
