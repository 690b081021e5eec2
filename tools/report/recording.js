// One recording of the data, with what its columns say of single ops and tensors.

const kParts = ['forward', 'backward', 'update'];

// The program's own line, which is the last of the scopes, without folders: "train.py:41".
function lineOf(scope) { return scope.split(' > ').pop().split('/').pop(); }

class Recording {
  constructor(data) {
    this.data = data;
    this.ops = data.ops;
    this.count = data.ops.operator.length;
    this.searchable = new Array(this.count);
    this.sitesByOp = new Map();
    for (const site of data.numbers.sites) {
      if (site.op < 0) continue;
      if (!this.sitesByOp.has(site.op)) this.sitesByOp.set(site.op, []);
      this.sitesByOp.get(site.op).push(site);
    }
  }

  operator(op) { return this.data.operators[this.ops.operator[op]]; }
  part(op) { return kParts[this.ops.part[op]]; }
  scope(op) { return this.ops.scope[op] < 0 ? '' : this.data.scopes[this.ops.scope[op]]; }
  line(op) { return lineOf(this.scope(op)); }

  call(op) {
    const module = this.ops.module[op];
    if (module < 0) return '';
    const call = this.ops.call[op];
    return this.data.modules[module].path + (call > 1 ? `@${call}` : '');
  }

  hasTimes() { return this.ops.ns.length > 0; }

  // Nanoseconds of the ops of each module, its own and with those of the modules below it.
  moduleTimes() {
    if (this.timesByModule) return this.timesByModule;
    const times = new Map(this.data.modules.map((module) => [module.path, {own: 0, below: 0}]));
    const parents = new Map(this.data.modules.map((module) => [module.path, module.parent]));
    this.ops.ns.forEach((ns, op) => {
      if (this.ops.module[op] < 0) return;
      const {path} = this.data.modules[this.ops.module[op]];
      times.get(path).own += ns;
      for (let above = path; times.has(above); above = parents.get(above)) {
        times.get(above).below += ns;
        if (parents.get(above) === above) break;
      }
    });
    this.timesByModule = times;
    return times;
  }

  buffer(tensor) { return this.data.tensors.buffer[tensor]; }
  role(buffer) { return this.data.buffers.roles[this.data.buffers.role[buffer]]; }
  path(buffer) { return this.data.buffers.path[buffer] || ''; }

  geometry(tensor) {
    const tensors = this.data.tensors;
    return `${tensors.dtypes[tensors.dtype[tensor]]} [${tensors.sizes[tensor].join(', ')}]`;
  }

  tensorWords(tensor) {
    if (tensor < 0) return 'undefined';
    const path = this.path(this.buffer(tensor));
    return `${path || 't' + tensor} ${this.geometry(tensor)}`;
  }

  words(value) {
    if (value === null) return 'none';
    if (typeof value === 'number') return this.tensorWords(value);
    if (Array.isArray(value)) return `{${value.map((item) => this.words(item)).join(', ')}}`;
    return value;
  }

  inputWords(op) { return this.ops.inputs[op].map((value) => this.words(value)).join(', '); }
  outputWords(op) { return this.ops.outputs[op].map((value) => this.words(value)).join(', '); }
  text(op) {
    const outputs = this.outputWords(op);
    return `${this.operator(op).name}(${this.inputWords(op)})${outputs ? ' → ' + outputs : ''}`;
  }

  // Without the numbers of tensors: what an equal op of another recording is called too.
  streamText(op) { return this.text(op).replace(/(^|[ ({])t\d+ (?=[a-z0-9]+ \[)/g, '$1'); }

  // All words of an op in lower case: made when they are first looked at.
  searchText(op) {
    if (this.searchable[op] === undefined) {
      this.searchable[op] =
        `${op} ${this.part(op)} ${this.call(op)} ${this.text(op)} ${this.scope(op)}`.toLowerCase();
    }
    return this.searchable[op];
  }

  // The ids of all tensors in the arguments or results of an op.
  static tensorsIn(value, found = []) {
    if (typeof value === 'number') {
      if (value >= 0) found.push(value);
    } else if (Array.isArray(value)) {
      for (const item of value) Recording.tensorsIn(item, found);
    }
    return found;
  }

  // By buffer, the ops that give a tensor in it and those that take one, in order.
  uses() {
    if (this.usesByBuffer) return this.usesByBuffer;
    const uses = this.data.buffers.bytes.map(() => ({given: [], taken: []}));
    for (let op = 0; op < this.count; ++op) {
      const add = (value, list) => {
        for (const tensor of Recording.tensorsIn(value)) {
          const ops = uses[this.buffer(tensor)][list];
          if (ops[ops.length - 1] !== op) ops.push(op);
        }
      };
      add(this.ops.inputs[op], 'taken');
      add(this.ops.outputs[op], 'given');
    }
    this.usesByBuffer = uses;
    return uses;
  }

  partCounts() {
    const counts = [0, 0, 0];
    for (const part of this.ops.part) ++counts[part];
    return counts;
  }
}
