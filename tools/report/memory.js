// The memory of temporaries over the step, drawn.

const kCurve = 110;   // pixels of the curve of live bytes
const kGap = 26;      // between curve and blocks, for the names of the parts
const kBlocks = 260;  // pixels of the blocks

class MemoryChart {
  constructor(recording, lifetimes, onCursor) {
    Object.assign(this, {recording, lifetimes, onCursor});
    this.packed = lifetimes.pack();
    this.live = lifetimes.live();
    this.peak = lifetimes.peak();
    this.cursor = this.peak.op;
    this.canvas = el('canvas', {
      tabindex: 0, role: 'img', class: 'chart',
      'aria-label': `Bytes of temporaries over ${countText(recording.count, 'op')}: at most ` +
        `${sizeText(this.peak.bytes)} at op ${this.peak.op}. Arrow keys move from op to op; the table ` +
        'below holds the same.',
      onkeydown: (event) => this.onKey(event),
      onmousemove: (event) => this.moveTo(this.opAt(event.offsetX), event.offsetY),
      onclick: () => { location.hash = `ops=${this.cursor}`; },
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  x(op) { return (op / Math.max(1, this.recording.count)) * this.width; }
  opAt(x) { return Math.floor((x / this.width) * this.recording.count); }

  moveTo(op, y = -1) {
    this.cursor = Math.min(Math.max(op, 0), this.recording.count - 1);
    this.draw();
    this.onCursor(this.cursor, this.blockAt(y));
  }

  blockAt(y) {
    const at = (1 - (y - kCurve - kGap) / kBlocks) * this.packed.height;
    return this.packed.placed.find((life) => life.first <= this.cursor && this.cursor <= life.last &&
      life.at <= at && at < life.at + life.bytes);
  }

  onKey(event) {
    const steps = {ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50,
      Home: -this.recording.count, End: this.recording.count};
    if (event.key === 'Enter') location.hash = `ops=${this.cursor}`;
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.moveTo(this.cursor + steps[event.key]);
  }

  draw() {
    this.width = this.canvas.clientWidth;
    if (this.width === 0 || this.recording.count === 0) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.width * scale;
    this.canvas.height = (kCurve + kGap + kBlocks) * scale;
    const pen = this.canvas.getContext('2d');
    pen.scale(scale, scale);
    pen.font = '12px system-ui, sans-serif';
    this.drawParts(pen);
    this.drawCurve(pen);
    this.drawBlocks(pen);
    this.drawCursor(pen);
  }

  drawParts(pen) {
    let end = 0;
    for (let start = 0; start < this.recording.count; start = end) {
      const part = this.recording.part(start);
      for (end = start; end < this.recording.count && this.recording.part(end) === part;) ++end;
      const width = this.x(end) - this.x(start);
      pen.fillStyle = themed(`--${part}`);
      pen.fillRect(this.x(start), kCurve + kGap - 6, Math.max(width, 1), 3);
      pen.fillStyle = themed('--muted');
      if (width > 60) pen.fillText(part, this.x(start) + 3, kCurve + kGap - 10);
    }
  }

  drawCurve(pen) {
    const top = 16;
    const y = (bytes) => kCurve - ((kCurve - top) * bytes) / Math.max(1, this.peak.bytes);
    pen.beginPath();
    pen.moveTo(0, kCurve);
    // of many ops in one pixel, the one with most
    const step = Math.max(1, Math.floor(this.recording.count / (2 * this.width)));
    for (let op = 0; op < this.recording.count; op += step) {
      let most = 0;
      for (let i = op; i < Math.min(op + step, this.recording.count); ++i) most = Math.max(most, this.live[i]);
      pen.lineTo(this.x(op), y(most));
      pen.lineTo(this.x(op + step), y(most));
    }
    pen.lineTo(this.width, kCurve);
    pen.fillStyle = themed('--curve');
    pen.fill();
    pen.fillStyle = themed('--text');
    const label = `peak ${sizeText(this.peak.bytes)}`;
    const at = Math.min(this.x(this.peak.op), this.width - pen.measureText(label).width - 4);
    pen.fillText(label, Math.max(at, 2), 12);
  }

  drawBlocks(pen) {
    const bottom = kCurve + kGap + kBlocks;
    const unit = kBlocks / Math.max(1, this.packed.height);
    pen.lineWidth = 1;
    pen.strokeStyle = themed('--panel');
    for (const life of this.packed.placed) {
      const left = this.x(life.first);
      const width = Math.max(1, this.x(life.last + 1) - left);
      const height = Math.max(0.5, life.bytes * unit);
      const top = bottom - life.at * unit - height;
      const isLive = life.first <= this.cursor && this.cursor <= life.last;
      pen.fillStyle = themed(isLive ? '--live' : `--${this.recording.part(life.first)}`);
      pen.fillRect(left, top, width, height);
      if (width > 3 && height > 3) pen.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    }
  }

  drawCursor(pen) {
    pen.fillStyle = themed('--text');
    pen.fillRect(this.x(this.cursor + 0.5), 14, 1, kCurve + kGap + kBlocks - 14);
  }
}

function lifetimesGrid(recording, lifetimes) {
  const all = lifetimes.all;
  const op = (index) => `op ${index} ${recording.operator(index).name}`;
  const grid = new Grid({
    label: 'Temporaries', count: all.length, height: 360,
    onOpen: (row) => { location.hash = `ops=${all[row].first}`; },
    columns: [
      {title: 'buffer', width: '6rem', numeric: true, text: (row) => String(all[row].buffer), key: (row) => all[row].buffer},
      {title: 'bytes', width: '9rem', numeric: true, text: (row) => sizeText(all[row].bytes), key: (row) => all[row].bytes},
      {title: 'ops alive', width: '7rem', numeric: true, text: (row) => numberText(all[row].last - all[row].first + 1),
        key: (row) => all[row].last - all[row].first},
      {title: 'made by', width: 'minmax(14rem, 2fr)', text: (row) => op(all[row].first), key: (row) => all[row].first},
      {title: 'last used by', width: 'minmax(14rem, 2fr)', text: (row) => op(all[row].last), key: (row) => all[row].last},
      {title: 'module call', width: 'minmax(10rem, 1fr)', text: (row) => recording.call(all[row].first),
        key: (row) => recording.call(all[row].first)},
    ],
  });
  grid.sortBy(1);
  grid.sortBy(1);
  const search = searchField('Search temporaries', grid, (row) =>
    `${op(all[row].first)} ${op(all[row].last)} ${recording.call(all[row].first)}`.toLowerCase());
  return [el('div', {class: 'tools', role: 'search'}, search.input, search.outcome), grid.element];
}

function memoryPanel(recording) {
  const lifetimes = new Lifetimes(recording);
  if (lifetimes.all.length === 0) return [note('The step makes no temporary.')];
  const status = el('p', {class: 'cursor', role: 'status'});
  const chart = new MemoryChart(recording, lifetimes, (op, block) => replaceAll(status,
    opLink(op, `op ${op} ${recording.operator(op).name}`), ` ${recording.call(op)} · ${sizeText(chart.live[op])} live`,
    block ? ` · buffer ${block.buffer}: ${sizeText(block.bytes)}, ops ${block.first} to ${block.last}` : ''));
  chart.onCursor(chart.cursor);
  const {placed, height} = chart.packed;
  const left = lifetimes.all.length - placed.length;
  return [
    facts([['temporaries', `${numberText(lifetimes.all.length)}, ${sizeText(lifetimes.total())} if none shared memory`],
      ['peak', `${sizeText(chart.peak.bytes)} live at op ${chart.peak.op}`],
      ['as drawn', `${sizeText(height)}${left ? `; ${left} small ones are left out` : ''}`]]),
    note('Above, bytes alive while each op runs. Below, each temporary from the op that makes it to the last that ' +
      'uses it, packed so that memory is shared; the plan of a replay may place them in another way.'),
    chart.canvas, status, el('h2', {}, 'Temporaries'), lifetimesGrid(recording, lifetimes),
  ];
}
