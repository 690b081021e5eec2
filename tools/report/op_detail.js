// All of one op: arguments by name, where their tensors come from, and what uses its results.

function lastBefore(ops, op) {
  let found = -1;
  for (const other of ops) {
    if (other >= op) break;
    found = other;
  }
  return found;
}

function originOf(recording, tensor, op) {
  const buffer = recording.buffer(tensor);
  const giver = lastBefore(recording.uses()[buffer].given, op);
  if (giver >= 0) return ['from ', opLink(giver, `op ${giver} ${recording.operator(giver).name}`)];
  return recording.role(buffer).replace('_', ' ');
}

function nextUses(recording, tensor, op) {
  const users = recording.uses()[recording.buffer(tensor)].taken.filter((other) => other > op);
  if (users.length === 0) return 'not used again';
  const links = users.slice(0, 4).flatMap((user) => [opLink(user), ' ']);
  return ['used by ', links, users.length > 4 ? `and ${users.length - 4} more` : ''];
}

function tensorDetail(recording, tensor, more) {
  const tensors = recording.data.tensors;
  const buffer = recording.buffer(tensor);
  const strides = tensors.strides[tensor];
  const words = [recording.tensorWords(tensor), `buffer ${buffer}, ${sizeText(recording.data.buffers.bytes[buffer])}`];
  if (strides) words.push(`strides [${strides.join(', ')}]`);
  if (tensors.offset[tensor]) words.push(`offset ${tensors.offset[tensor]}`);
  if (tensors.flags[tensor]) words.push(tensors.flags[tensor]);
  return el('div', {}, words.join(' · '), ' · ', more);
}

function valueDetail(recording, value, more) {
  const found = Recording.tensorsIn(value);
  if (found.length === 0) return recording.words(value);
  const kMost = 32;
  return el('div', {}, found.slice(0, kMost).map((tensor) => tensorDetail(recording, tensor, more(tensor))),
    found.length > kMost && `and ${found.length - kMost} more tensors`);
}

function formulaWords(recording, op, argument) {
  const sites = (recording.sitesByOp.get(op) || []).filter((site) => site.argument === argument);
  return sites.map((site) => el('div', {class: 'formula'}, site.item < 0 ? '= ' : `[${site.item}] = `,
    recording.data.numbers.formulas[site.formula]));
}

// Ops of the other direction that autograd counts with this one.
function partners(recording, op) {
  const sequence = recording.ops.sequence[op];
  if (sequence < 0) return [];
  const isBackward = recording.part(op) === 'backward';
  const found = [];
  for (let other = 0; other < recording.count && found.length < 8; ++other) {
    if (recording.ops.sequence[other] !== sequence) continue;
    if ((recording.part(other) === 'backward') !== isBackward) found.push(other);
  }
  return found;
}

function opDetail(recording, op) {
  const operator = recording.operator(op);
  const rows = recording.ops.inputs[op].map((value, i) => [operator.arguments[i] || `argument ${i}`, el('div', {},
    valueDetail(recording, value, (tensor) => originOf(recording, tensor, op)), formulaWords(recording, op, i))]);
  recording.ops.outputs[op].forEach((value, i) => rows.push([`result ${i}`,
    valueDetail(recording, value, (tensor) => nextUses(recording, tensor, op))]));
  const read = recording.data.numbers.reads.find((found) => found.op === op);
  const refusals = recording.data.refusals.filter((refusal) => refusal.op_index === op);
  return el('section', {class: 'detail', 'aria-label': `op ${op}`},
    el('h3', {}, `op ${op}  `, el('code', {}, operator.name), ' ', badge(recording.part(op), recording.part(op))),
    facts([['module call', recording.call(op) || 'none'], ['where', recording.scope(op) || 'not known'],
      ['time', recording.hasTimes() ? timeText(recording.ops.ns[op]) : ''],
      ['schema', operator.schema], ['host read', read ? read.use : ''],
      ['refused', refusals.map((refusal) => `${refusal.code}: ${refusal.message}`).join('; ')]]),
    partners(recording, op).length > 0 && el('p', {},
      recording.part(op) === 'backward' ? 'Forward: ' : 'Backward: ',
      partners(recording, op).flatMap((other) => [opLink(other, `op ${other} ${recording.operator(other).name}`), '  '])),
    smallTable(`Arguments and results of op ${op}`, ['name', 'value'], rows));
}
