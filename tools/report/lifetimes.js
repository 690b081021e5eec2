// When the temporaries of a step live, and where they would lie if they shared memory.

const kPacked = 3000;  // so many of the largest are laid out

class Lifetimes {
  constructor(recording) {
    const buffers = recording.data.buffers;
    const role = buffers.roles.indexOf('temporary');
    this.ops = recording.count;
    this.all = [];
    for (let buffer = 0; buffer < buffers.bytes.length; ++buffer) {
      if (buffers.role[buffer] !== role || buffers.first[buffer] < 0) continue;
      this.all.push({buffer, bytes: buffers.bytes[buffer], first: buffers.first[buffer], last: buffers.last[buffer]});
    }
  }

  // Bytes that live while each op runs.
  live() {
    if (this.liveBytes) return this.liveBytes;
    const live = new Float64Array(this.ops + 1);
    for (const life of this.all) {
      live[life.first] += life.bytes;
      live[life.last + 1] -= life.bytes;
    }
    for (let op = 1; op < live.length; ++op) live[op] += live[op - 1];
    this.liveBytes = live.subarray(0, this.ops);
    return this.liveBytes;
  }

  peak() {
    let op = 0;
    const live = this.live();
    for (let i = 1; i < live.length; ++i) if (live[i] > live[op]) op = i;
    return {op, bytes: live.length ? live[op] : 0};
  }

  total() { return this.all.reduce((sum, life) => sum + life.bytes, 0); }

  // Gives the largest an `at` each, so that none overlaps another in time and place: large ones
  // first, each as low as it fits.
  pack() {
    const chosen = this.all.filter((life) => life.bytes > 0).sort((a, b) => b.bytes - a.bytes || a.first - b.first)
      .slice(0, kPacked);
    const placed = [];
    let height = 0;
    for (const life of chosen) {
      const beside = placed.filter((other) => other.first <= life.last && life.first <= other.last)
        .sort((a, b) => a.at - b.at);
      let at = 0;
      for (const other of beside) {
        if (other.at - at >= life.bytes) break;
        at = Math.max(at, other.at + other.bytes);
      }
      life.at = at;
      placed.push(life);
      height = Math.max(height, at + life.bytes);
    }
    return {placed, height};
  }
}
