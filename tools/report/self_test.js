// Checks of the page by itself, for its test: report.html#self-test writes what came of them.

function ascending(values) {
  return values.every((value, i) => i === 0 || values[i - 1] <= value);
}

function opsChecks(recording, check) {
  const [panel] = opsPanel(recording);
  document.body.append(panel);
  const {grid, search} = panel;
  const operators = () => grid.order.map((op) => recording.operator(op).name);
  grid.sortBy(2);
  check('sort up', ascending(operators()));
  grid.sortBy(2);
  check('sort down', ascending(operators().reverse()));
  grid.sortBy(2);
  check('sort off', ascending(grid.order));
  if (recording.hasTimes()) {
    const time = grid.columns.findIndex((column) => column.title === 'time');
    grid.sortBy(time);
    check('sort by time', ascending(grid.order.map((op) => recording.ops.ns[op])));
    grid.sortBy(time);
    grid.sortBy(time);
    const times = recording.ops.ns.filter((ns, op) => recording.ops.module[op] >= 0);
    const own = [...recording.moduleTimes().values()].reduce((sum, module) => sum + module.own, 0);
    check('modules take what their ops take', own === times.reduce((sum, ns) => sum + ns, 0));
  }
  check('few rows are elements', grid.body.children.length <= 60);
  if (recording.count > 0) {
    const name = recording.operator(recording.count - 1).name.toLowerCase();
    search.input.value = name;
    search.input.dispatchEvent(new Event('input'));
    check('search finds', grid.order.includes(recording.count - 1) &&
      grid.order.every((op) => recording.searchText(op).includes(name)));
    search.input.value = `-${name}`;
    search.input.dispatchEvent(new Event('input'));
    check('search leaves out', grid.order.every((op) => !recording.searchText(op).includes(name)));
    panel.open(0);
    check('an op opens', panel.textContent.includes('op 0'));
    grid.element.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}));
    check('the End key', grid.active === recording.count - 1);
    check('the active row is named', document.getElementById(
      grid.element.getAttribute('aria-activedescendant')) !== null);
  }
  panel.remove();
}

function diffChecks(data, check) {
  const element = el('div');
  for (const step of data.diff.steps) {
    put(element, [timesParts(step)]);
    check('a module for each line of times', !step.times || element.textContent.includes('all ops'));
    for (const pair of step.recordings) {
      const {numerics} = pair;
      replaceAll(element, numericsParts(numerics, 'test'));
      check('why nothing was compared', !numerics.not_compared || element.textContent.includes(numerics.not_compared));
      check('origins come first', !numerics.origins || numerics.ops[0].status === 'origin');
      check('no more ops than differ', numerics.not_compared || numerics.ops.length + numerics.left_out >=
        numerics.origins + numerics.receivers + numerics.unknown + numerics.noisy);
    }
  }
}

function textChecks(check) {
  check('times have units', timeText(1250) === '1.3 µs' && timeText(2500000) === '2.50 ms' && timeText(3e9) === '3.00 s');
  check('control characters are shown', shown('a\u001b\u202eb') === 'a\\u001b\\u202eb');
  const element = el('p', {}, '<b onclick=alert(1)>');
  check('text is no markup', element.children.length === 0 && element.textContent.startsWith('<b'));
  check('nothing but the page\'s own scripts', document.scripts.length === 2);
}

function selfTest(data, tabs, choose) {
  const failed = [];
  let count = 0;
  const check = (name, holds) => {
    ++count;
    if (!holds) failed.push(name);
  };
  const attempt = (name, run) => {
    try {
      run();
    } catch (error) {
      check(`${name}: ${error}`, false);
    }
  };
  attempt('text', () => textChecks(check));
  for (const step of data.steps) {
    for (const own of step.recordings) attempt('ops', () => opsChecks(new Recording(own), check));
  }
  if (data.diff) attempt('diff', () => diffChecks(data, check));
  for (const tab of tabs) {
    attempt(tab.name, () => {
      choose(tab.name);
      const text = document.getElementById(`panel-${tab.name}`).textContent;
      check(`${tab.name} shows something`, text.length > 20);
      check(`${tab.name} shows words`, !/\[object /.test(text));
    });
  }
  const outcome = failed.length ? `failed: ${failed.join('; ')}` : `passed ${count} checks`;
  document.body.append(el('output', {id: 'self-test'}, outcome));
}
