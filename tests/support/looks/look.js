// What a reader of this page could not read. The value is {wide, tables, faint, ids, links}.
() => {
  const width = window.innerWidth;
  const label = (element) => {
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
    return `<${element.tagName.toLowerCase()} class="${element.className}"> ${text}`;
  };
  const isShown = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(element).visibility === "visible";
  };

  // The page itself does not scroll sideways.
  const wide = [];
  if (document.documentElement.scrollWidth > width) {
    for (const element of document.querySelectorAll("main *")) {
      if (element.getBoundingClientRect().right > width + 1 && !scrollerOf(element)) {
        wide.push(label(element));
      }
    }
    wide.push(`${document.documentElement.scrollWidth} px`);
  }

  // The nearest box around an element that lets a reader scroll to its right end.
  function scrollerOf(element) {
    for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return at;
    }
    return null;
  }

  // A table, a block of code or a picture fits in its boxes, or one of them scrolls.
  const tables = [];
  for (const element of document.querySelectorAll("main table, main pre, main img")) {
    if (!isShown(element)) continue;
    const right = element.getBoundingClientRect().right;
    for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
      const overflow = getComputedStyle(at).overflowX;
      if (["auto", "scroll"].includes(overflow)) break;
      const end = at.getBoundingClientRect().right;
      if (["hidden", "clip"].includes(overflow) && right > end + 1) {
        tables.push(`cut at ${Math.round(end)} of ${Math.round(right)} px: ${label(element)}`);
      }
    }
  }
  // Where there is room, nobody has to scroll for a sentence.
  for (const element of document.querySelectorAll("main [data-kind=prose]")) {
    const room = scrollerOf(element)?.clientWidth ?? width;
    if (width >= 1000 && element.getBoundingClientRect().width > room + 1) {
      tables.push(`wider than its ${room} px: ${label(element)}`);
    }
  }
  // Each cell shows all that it holds, and no column is so narrow that it is a strip.
  for (const cell of document.querySelectorAll("main table:not(.highlighttable) :is(td, th)")) {
    if (!cell.textContent.trim()) continue;
    const style = getComputedStyle(cell);
    // A row that is shown as a list has the names of its columns in its cells.
    const isNamedInCells = cell.tagName === "TH" && cell.closest("[data-kind=prose]") && width < 720;
    if (isNamedInCells) continue;
    if (!isShown(cell)) tables.push(`a cell is hidden: ${label(cell)}`);
    if (style.overflowX !== "visible" && cell.scrollWidth > cell.clientWidth + 1) {
      tables.push(`a cell is cut: ${label(cell)}`);
    }
    const range = document.createRange();
    range.selectNodeContents(cell);
    const content = range.getBoundingClientRect(), box = cell.getBoundingClientRect();
    if (content.right > box.right + 1 || content.left < box.left - 1) {
      tables.push(`a cell's content runs into the next: ${label(cell)}`);
    }
    const lines = box.height / parseFloat(style.lineHeight);
    if (lines > LINES_MAX) tables.push(`a cell of ${Math.round(lines)} lines: ${label(cell)}`);
  }

  // Contrast of text, as WCAG 2.1 has it (1.4.3, level AA).
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colors = new Map();
  const rgba = (color) => {
    if (!colors.has(color)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      colors.set(color, [r, g, b, a / 255]);
    }
    return colors.get(color);
  };
  const over = ([r, g, b, a], [r0, g0, b0]) =>
    [r * a + r0 * (1 - a), g * a + g0 * (1 - a), b * a + b0 * (1 - a)];
  const luminance = (color) => {
    const [r, g, b] = color.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = rgba(getComputedStyle(at).backgroundColor);
      layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const opacityOf = (element) => {
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
    return opacity;
  };
  const faint = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !isShown(element)) continue;
    if (element.closest("script, style, noscript, svg, .headerlink, [hidden]")) continue;
    const style = getComputedStyle(element), opacity = opacityOf(element);
    if (opacity === 0) continue; // Shown once it is used: the tip of a copy button.
    const ground = behind(element), [r, g, b, a] = rgba(style.color);
    const ratio = contrast(over([r, g, b, a * opacity], ground), ground);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5) - 0.005) {
      faint.set(`${style.color} on ${ground.map(Math.round)}`, `${ratio.toFixed(2)}: ${label(element)}`);
    }
  }

  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  const links = [...document.querySelectorAll("a[href]")].map((element) => element.href);
  return { wide, tables, faint: [...faint].map(([pair, where]) => `${pair}, ${where}`), ids, links };
}
