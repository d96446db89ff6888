// Runs the script of a page in a document that only remembers, and tells what it drew.
const fs = require("node:fs");
const text = fs.readFileSync(process.argv[2], "utf8");
const json = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(text)[1];
const script = text.slice(text.lastIndexOf("<script>") + 8, text.lastIndexOf("</script>"));

class Element {
  constructor(name) {
    Object.assign(this, { name, style: {}, dataset: {}, heard: {}, children: [], attributes: {}, html: "", textContent: "", value: "" });
    Object.assign(this, { scrollTop: 0, scrollLeft: 0, clientHeight: 900, clientWidth: 1600, checked: false, hidden: false });
    this.classList = { toggle() {}, add() {} };
  }
  set innerHTML(html) { this.html = html; }
  get innerHTML() { return this.html; }
  addEventListener(kind, heard) { this.heard[kind] = heard; }
  append(...children) { this.children.push(...children); }
  replaceChildren() { this.children = []; }
  setAttribute(name, value) { this.attributes[name] = value; }
  getBoundingClientRect() { return { width: 300, height: 120 }; }
  scrollIntoView() {}
}
const elements = new Map();
const rows = [...text.matchAll(/<tr class="\w+" data-finding="(\d+)"/g)].map((found) => {
  const row = new Element("tr");
  row.dataset.finding = found[1];
  return row;
});
globalThis.document = {
  getElementById(id) {
    if (!elements.has(id)) elements.set(id, new Element(id));
    return elements.get(id);
  },
  createElement: (name) => new Element(name),
  querySelectorAll: () => rows,
  addEventListener() {},
};
document.getElementById("data").textContent = json;
Object.assign(globalThis, { location: { hash: "" }, innerWidth: 1600, innerHeight: 1000, addEventListener() {}, requestAnimationFrame: (f) => f() });
Object.defineProperty(globalThis, "history", { value: { replaceState() {} }, configurable: true });
(0, eval)(script);

const lines = elements.get("lines"), scroll = elements.get("scroll"), data = JSON.parse(json);
const drawn = () => new Set([...lines.html.matchAll(/data-i="(\d+)"/g)].map((found) => +found[1]));
const told = { first: drawn().size, seen: 0, chosen: null, dimmed: 0, hot: 0, tip: [], lanes: 0, without: 0, found: "" };
const seen = new Set();
for (let top = 0; top < data.height; top += 800) {
  scroll.scrollTop = top;
  scroll.heard.scroll();
  drawn().forEach((i) => seen.add(i));
}
told.seen = seen.size;
told.lanes = [...elements.get("heads").html.matchAll(/data-lane/g)].length;
if (rows.length) {
  rows[0].heard.click({ preventDefault() {} });
  told.chosen = scroll.scrollTop;
  told.dimmed = [...lines.html.matchAll(/ dim"? /g)].length + [...lines.html.matchAll(/ dim"/g)].length;
  told.hot = [...lines.html.matchAll(/mark [a-z]+ hot/g)].length;
  const at = data.findings[+rows[0].dataset.finding].at;
  lines.heard.click({ target: { closest: () => ({ dataset: { i: String(at) } }) }, clientX: 5, clientY: 5 });
  told.tip = elements.get("tip").children.map((child) => child.textContent);
}
elements.get("heads").heard.click({ target: { closest: () => ({ dataset: { lane: "1" } }) } });
told.without = [...elements.get("heads").html.matchAll(/data-lane/g)].length;
elements.get("search").value = "recovered";
elements.get("search").heard.keydown({ key: "Enter" });
told.found = elements.get("hits").textContent;
console.log(JSON.stringify(told));
