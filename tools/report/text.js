// Words and numbers as the page shows them.

// Names in a trace are untrusted. Characters that hide, or that turn the direction of text, are shown
// as what they are.
const kHidden =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function shown(text) {
  return String(text).replace(kHidden, (c) =>
    c === '\n' ? '\\n' : c === '\t' ? '\\t' : '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function sizeText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0;
  let size = bytes;
  for (; size >= 1024 && unit + 1 < units.length; size /= 1024) ++unit;
  return unit === 0 ? `${bytes} B` : `${size.toFixed(1)} ${units[unit]}`;
}

function timeText(nanoseconds) {
  if (nanoseconds < 1e6) return `${(nanoseconds / 1e3).toFixed(1)} µs`;
  return nanoseconds < 1e9 ? `${(nanoseconds / 1e6).toFixed(2)} ms` : `${(nanoseconds / 1e9).toFixed(2)} s`;
}

function numberText(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, '\u2009');
}

function countText(count, noun) {
  return `${numberText(count)} ${noun}${count === 1 ? '' : 's'}`;
}
