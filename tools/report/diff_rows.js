// Rows of two op streams side by side: long runs of equal ops are folded.

const kContext = 3;  // equal ops that stay in sight before and after an edit
const kMarks = {remove: '−', insert: '+', change: '~', move: '↷', same: '', fold: '⋯'};

class DiffRows {
  constructor(rows) {
    this.items = rows;
    this.open = new Set();  // runs that are unfolded
    this.arrange();
  }

  arrange() {
    this.rows = [];
    this.items.forEach((item, at) => {
      if (!item.same) {
        this.rows.push({kind: item.kind, item});
        return;
      }
      const [a, b, count] = item.same;
      const before = at === 0 ? 0 : kContext;
      const behind = at + 1 === this.items.length ? 0 : kContext;
      const isFolded = !this.open.has(at) && count > before + behind + 1;
      for (let i = 0; i < count; ++i) {
        if (isFolded && i === before) {
          const hidden = count - before - behind;
          this.rows.push({kind: 'fold', at, hidden, a: a + i, b: b + i, item});
          i += hidden - 1;
        } else {
          this.rows.push({kind: 'same', a: a + i, b: b + i, item});
        }
      }
    });
  }

  unfold(row) {
    this.open.add(this.rows[row].at);
    this.arrange();
  }

  setAllOpen(isOpen) {
    this.open = new Set(isOpen ? this.items.keys() : []);
    this.arrange();
  }

  // The number of the op at side 'a' or 'b', or -1.
  op(row, side) {
    const {kind, item} = this.rows[row];
    if (kind === 'same' || kind === 'fold') return this.rows[row][side];
    if (kind === 'move' && item.side !== side) return -1;
    return item[side] ? item[side].op : -1;
  }

  text(row, side, recording) {
    const {kind, item, hidden, a} = this.rows[row];
    if (kind === 'fold') return `${countText(hidden, 'equal op')}: Enter shows them`;
    if (kind === 'same') return recording.streamText(a);
    return this.op(row, side) < 0 ? '' : item[side].text;
  }

  call(row, recording) {
    const {kind, item, a} = this.rows[row];
    if (kind === 'fold') return '';
    if (kind === 'same') return recording.call(a);
    return (item.a || item.b).call;
  }

  isEdit(row) { return !['same', 'fold'].includes(this.rows[row].kind); }
}

// The first character in which two texts differ, and how many they share at the end.
function unequalPart(x, y) {
  let start = 0;
  while (start < x.length && start < y.length && x[start] === y[start]) ++start;
  let end = 0;
  while (end < x.length - start && end < y.length - start && x[x.length - 1 - end] === y[y.length - 1 - end]) ++end;
  return [start, end];
}

// The text of one side with what the other side has not marked.
function markedText(own, other) {
  if (!other) return own;
  const [start, end] = unequalPart(own, other);
  if (start === own.length - end) return own;
  return [own.slice(0, start), el('mark', {}, own.slice(start, own.length - end)), own.slice(own.length - end)];
}
