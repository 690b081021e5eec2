// A table of any length: only the rows in sight are elements. Arrow keys, Page Up and Down, Home and
// End move in it, Enter opens a row.

const kRowHeight = 30;  // as --row in style.css
const kBeyond = 6;      // rows drawn above and below what is in sight

class Grid {
  // columns: [{title, width, text(row), cell(row)?, key(row)?, numeric?}]; a column with `key` sorts.
  constructor({label, columns, count, height = 420, rowClass, onOpen}) {
    Object.assign(this, {label, columns, rowClass, onOpen});
    this.id = `grid${Grid.made = (Grid.made || 0) + 1}`;
    this.sorted = {column: -1, descending: false};
    this.active = -1;
    this.keep = () => true;
    this.heads = columns.map((column, i) => this.headOf(column, i));
    this.body = el('div', {class: 'rows', role: 'rowgroup'});
    this.element = el('div', {
      class: 'grid', role: 'grid', tabindex: 0, 'aria-label': label,
      'aria-colcount': columns.length, onkeydown: (event) => this.onKey(event),
      onscroll: () => this.drawSoon(),
    }, el('div', {class: 'head', role: 'rowgroup'}, el('div', {role: 'row', class: 'row'}, this.heads)),
    this.body);
    this.element.style.setProperty('--columns', columns.map((column) => column.width).join(' '));
    const widths = columns.map((column) => Number(column.width.match(/([\d.]+)rem/)[1]));
    const gaps = 0.9 * (columns.length - 1) + 1.6;  // as in style.css
    this.element.style.setProperty('--least', `${widths.reduce((sum, width) => sum + width, gaps)}rem`);
    this.element.style.maxHeight = `${height}px`;
    this.height = height;
    this.setCount(count);
  }

  headOf(column, i) {
    const props = {role: 'columnheader', class: column.numeric ? 'number' : undefined};
    if (!column.key) return el('div', props, column.title);
    return el('div', {...props, 'aria-sort': 'none'},
      el('button', {type: 'button', onclick: () => this.sortBy(i)}, column.title));
  }

  setCount(count) {
    this.count = count;
    this.arrange();
  }

  filter(keep) {
    this.keep = keep;
    this.arrange();
    this.element.scrollTop = 0;
  }

  // Up, then down, then in the order of the trace again.
  sortBy(column) {
    const {sorted} = this;
    if (sorted.column !== column) {
      this.sorted = {column, descending: false};
    } else {
      this.sorted = sorted.descending ? {column: -1, descending: false} : {column, descending: true};
    }
    this.heads.forEach((head, i) => {
      if (!this.columns[i].key) return;
      const is = i === this.sorted.column;
      head.setAttribute('aria-sort', !is ? 'none' : this.sorted.descending ? 'descending' : 'ascending');
    });
    this.arrange();
  }

  arrange() {
    const order = [];
    for (let row = 0; row < this.count; ++row) if (this.keep(row)) order.push(row);
    const {column, descending} = this.sorted;
    if (column >= 0) {
      const keys = new Map(order.map((row) => [row, this.columns[column].key(row)]));
      const sign = descending ? -1 : 1;
      order.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        return x < y ? -sign : x > y ? sign : a - b;
      });
    }
    this.order = order;
    this.element.setAttribute('aria-rowcount', order.length + 1);
    this.body.style.height = `${order.length * kRowHeight}px`;
    this.draw();
    if (this.onArranged) this.onArranged(order.length);
  }

  drawSoon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor(top / kRowHeight) - kBeyond);
    const seen = Math.ceil((this.element.clientHeight || this.height) / kRowHeight) + 2 * kBeyond;
    const rows = [];
    for (let at = first; at < Math.min(this.order.length, first + seen); ++at) rows.push(this.rowAt(at));
    this.body.replaceChildren(...rows);
    const isActive = this.activeAt >= first && this.activeAt < first + seen;
    if (this.active >= 0 && isActive) {
      this.element.setAttribute('aria-activedescendant', `${this.id}r${this.active}`);
    } else {
      this.element.removeAttribute('aria-activedescendant');
    }
  }

  rowAt(at) {
    const row = this.order[at];
    const isActive = row === this.active;
    if (isActive) this.activeAt = at;
    const classes = ['row', this.rowClass && this.rowClass(row), isActive && 'active'];
    const element = el('div', {
      role: 'row', id: `${this.id}r${row}`, class: classes.filter(Boolean).join(' '),
      'aria-rowindex': at + 2, 'aria-selected': isActive ? 'true' : 'false',
      onclick: () => this.open(at),
    }, this.columns.map((column) => {
      const text = column.text(row);
      return el('div', {role: 'gridcell', class: column.numeric ? 'number' : undefined, title: text},
        column.cell ? column.cell(row) : text);
    }));
    element.style.top = `${at * kRowHeight}px`;
    return element;
  }

  moveTo(at) {
    if (this.order.length === 0) return;
    this.activeAt = Math.min(Math.max(at, 0), this.order.length - 1);
    this.active = this.order[this.activeAt];
    const top = this.activeAt * kRowHeight;
    const seen = (this.element.clientHeight || this.height) - 2 * kRowHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    if (top > this.element.scrollTop + seen) this.element.scrollTop = top - seen;
    this.draw();
  }

  open(at) {
    this.moveTo(at);
    if (this.onOpen && this.active >= 0) this.onOpen(this.active);
  }

  // Opens a row by its number in the trace; false where the filter hides it.
  openRow(row) {
    const at = this.order.indexOf(row);
    if (at < 0) return false;
    this.element.scrollTop = Math.max(0, (at - 4) * kRowHeight);
    this.open(at);
    return true;
  }

  onKey(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.active < 0 ? -1 : this.order.indexOf(this.active);
    const page = Math.max(1, Math.floor(this.element.clientHeight / kRowHeight) - 2);
    const steps = {ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page,
      Home: 0, End: this.order.length - 1};
    if (event.key in steps) {
      this.moveTo(steps[event.key]);
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.open(Math.max(at, 0));
    } else {
      return;
    }
    event.preventDefault();
  }
}

// A field that keeps the rows of `grid` that hold all of its words, and none of those behind "-".
function searchField(label, grid, textOf, also = () => true) {
  const outcome = el('span', {class: 'muted', role: 'status'});
  grid.onArranged = (rows) => replaceAll(outcome, `${numberText(rows)} of ${numberText(grid.count)}`);
  const input = el('input', {
    type: 'search', placeholder: 'words, -without', 'aria-label': label, oninput: () => refresh(),
    onkeydown: (event) => {
      if (event.key !== 'Escape') return;
      input.value = '';
      refresh();
    },
  });
  function refresh() {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word && word !== '-');
    const wanted = words.filter((word) => !word.startsWith('-'));
    const unwanted = words.filter((word) => word.startsWith('-')).map((word) => word.slice(1));
    grid.filter((row) => {
      if (!also(row)) return false;
      const text = words.length === 0 ? '' : textOf(row);
      return wanted.every((word) => text.includes(word)) && !unwanted.some((word) => text.includes(word));
    });
  }
  grid.onArranged(grid.order.length);
  return {input, outcome, refresh};
}
