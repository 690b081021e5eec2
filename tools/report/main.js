// The page: tabs over one recording.

const data = JSON.parse(document.getElementById('data').textContent);

const kTabs = [
  {name: 'overview', title: 'Overview', panel: overviewPanel},
  data.diff && {name: 'diff', title: 'Diff', panel: () => diffPanel(data),
    count: () => Object.values(data.diff.counts).reduce((sum, count) => sum + count, 0)},
  {name: 'ops', title: 'Ops', panel: opsPanel, count: (own) => own.count},
  {name: 'modules', title: 'Modules', panel: modulesPanel, count: (own) => own.data.modules.length},
  {name: 'optimizer', title: 'Optimizer', panel: optimizerPanel, count: (own) => own.data.optimizers.length},
  {name: 'memory', title: 'Memory', panel: memoryPanel},
  {name: 'numbers', title: 'Numbers', panel: numbersPanel, count: (own) => own.data.numbers.sites.length},
  {name: 'guards', title: 'Guards', panel: guardsPanel, count: (own) => own.data.guards.length},
  {name: 'constants', title: 'Constants', panel: constantsPanel, count: (own) => own.data.constants.length},
  {name: 'refusals', title: 'Refusals', panel: refusalsPanel, count: (own) => own.data.refusals.length},
].filter(Boolean);

const choices = data.steps.flatMap((step) => step.recordings.map((own, i) => ({step, own, i})));
let recording = null;
let current = 'overview';

function tabButton(tab) {
  const isCurrent = tab.name === current;
  const count = recording && tab.count ? tab.count(recording) : null;
  return el('button', {
    type: 'button', role: 'tab', id: `tab-${tab.name}`, 'aria-controls': `panel-${tab.name}`,
    'aria-selected': String(isCurrent), tabindex: isCurrent ? 0 : -1,
    onclick: () => { location.hash = tab.name; },
  }, tab.title, count === null ? '' : [' ', el('span', {class: 'count'}, numberText(count))]);
}

function choose(name) {
  current = name;
  const tab = kTabs.find((found) => found.name === name);
  replaceAll(document.getElementById('tabs'), kTabs.map(tabButton));
  const panel = el('section', {role: 'tabpanel', id: `panel-${name}`, 'aria-labelledby': `tab-${name}`});
  replaceAll(document.getElementById('main'), panel);
  if (recording === null && name !== 'diff') {
    put(panel, [note('The trace has no recording.')]);
    return null;
  }
  const parts = tab.panel(recording, data);
  put(panel, parts);
  return parts[0];
}

// "#ops=17" opens op 17.
function follow() {
  const [name, op] = location.hash.slice(1).split('=');
  const tab = kTabs.some((found) => found.name === name) ? name : 'overview';
  const panel = choose(tab);
  if (tab === 'ops' && op !== undefined && panel && panel.open) panel.open(Number(op));
}

function fillChoice() {
  const select = document.getElementById('recording');
  choices.forEach(({step, own, i}, at) => select.append(el('option', {value: at},
    `${step.name}: recording ${i}, ${own.status.replace('_', '-')}, ${countText(own.ops.operator.length, 'op')}`)));
  const usual = choices.findLastIndex(({own}) => own.status !== 'warm_up');
  const first = Math.max(usual, 0);
  select.value = String(first);
  if (choices.length > 0) recording = new Recording(choices[first].own);
  select.addEventListener('change', () => {
    recording = new Recording(choices[Number(select.value)].own);
    choose(current);
  });
}

function onTabKey(event) {
  const at = kTabs.findIndex((tab) => tab.name === current);
  const steps = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: kTabs.length - 1};
  if (!(event.key in steps)) return;
  event.preventDefault();
  const name = kTabs[(steps[event.key] + kTabs.length) % kTabs.length].name;
  history.replaceState(null, '', `#${name}`);
  choose(name);
  document.getElementById(`tab-${name}`).focus();
}

// "/" leads to the search field, as in other tools.
function onKey(event) {
  if (event.key !== '/' || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  const field = document.querySelector('main input[type=search]');
  if (!field) return;
  event.preventDefault();
  field.focus();
}

document.title = `${shown(data.a.name)}${data.b ? ` and ${shown(data.b.name)}` : ''} · steptape report`;
replaceAll(document.getElementById('files'), data.a.name, data.b ? ` (A) and ${data.b.name} (B)` : '',
  data.steps.length === 1 && data.steps[0].place ? ` · ${data.steps[0].name} at ${lineOf(data.steps[0].place)}` : '');
fillChoice();
document.getElementById('tabs').addEventListener('keydown', onTabKey);
document.addEventListener('keydown', onKey);
window.addEventListener('hashchange', follow);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => choose(current));
if (location.hash === '#self-test') {
  selfTest(data, kTabs, choose);
} else {
  follow();
}
