// Elements. Text enters them as text alone, never as markup.

// el('td', {class: 'number', onclick: f}, 'text', child, ...)
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? '' : shown(value));
    }
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
}

function replaceAll(element, ...children) {
  element.replaceChildren();
  put(element, children);
}

// A table for few rows. Cells are texts or elements; those of `numeric` columns stand at the right.
function smallTable(caption, titles, rows, numeric = []) {
  const align = (column) => (numeric.includes(column) ? 'number' : undefined);
  return el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption},
    el('table', {},
      el('caption', {}, caption),
      el('thead', {}, el('tr', {},
        titles.map((title, i) => el('th', {scope: 'col', class: align(i)}, title)))),
      el('tbody', {}, rows.map((cells) => el('tr', {},
        cells.map((cell, i) => el('td', {class: align(i)}, cell)))))));
}

function facts(pairs) {
  return el('dl', {class: 'facts'}, pairs.filter(([, value]) => value !== '').map(([name, value]) =>
    [el('dt', {}, name), el('dd', {}, value)]));
}

function note(...children) {
  return el('p', {class: 'note'}, ...children);
}

function badge(kind, text) {
  return el('span', {class: `badge ${kind}`}, text);
}

// A word that leads to an op in the table of all ops.
function opLink(op, words) {
  if (op < 0) return el('span', {class: 'muted'}, 'no op');
  return el('a', {href: `#ops=${op}`, class: 'op'}, words || `op ${op}`);
}

function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
