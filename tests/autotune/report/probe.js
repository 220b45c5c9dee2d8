// Measures the page in a browser: what overflows, what overlaps, what sorting does.
addEventListener("load", () => setTimeout(() => {
  const visible = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const box = (e) => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const corners = (t) => {
    const b = t.getBBox(), place = t.getScreenCTM();
    return [[b.x, b.y], [b.x + b.width, b.y], [b.x + b.width, b.y + b.height], [b.x, b.y + b.height]]
      .map(([x, y]) => { const p = new DOMPoint(x, y).matrixTransform(place); return [p.x, p.y]; });
  };
  const name = (e) => `${e.tagName}.${e.getAttribute("class")}: ${e.textContent.slice(0, 40)}`;
  for (const part of document.querySelectorAll("details")) part.open = true;
  const all = [...document.body.querySelectorAll("*")].filter(visible);
  const html = all.filter((e) => !(e instanceof SVGElement));
  const outside = all.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map(name);
  const scrolling = html.filter((e) => e.scrollWidth > e.clientWidth + 1
    && ["auto", "scroll"].includes(getComputedStyle(e).overflowX)).map(name);
  const charts = [...document.querySelectorAll("svg.chart")].filter(visible).map((svg) => ({
    label: svg.getAttribute("aria-label"), kind: svg.getAttribute("class"), box: box(svg),
    texts: [...svg.querySelectorAll("text")].map((t) => ({
      text: t.textContent, kind: t.getAttribute("class"), box: box(t),
      size: parseFloat(getComputedStyle(t).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width,
      corners: corners(t), turned: t.hasAttribute("transform") })),
    shapes: [...svg.querySelectorAll("line,rect,circle,polyline,polygon")].map(box),
  }));
  const nodes = [...document.querySelectorAll("svg.graph .node")].flatMap((n) =>
    [...n.querySelectorAll("text:not(.bytes)")].map((t) =>
      [t.textContent, t.getBoundingClientRect().right - n.querySelector("rect.box").getBoundingClientRect().right]));
  const table = document.querySelector("table.kernels");
  const column = (n) => [...table.tBodies[0].rows].filter((r) => !r.classList.contains("noted"))
    .map((r) => Number(r.cells[n].dataset.sort));
  const before = column(5);
  table.tHead.rows[0].cells[5].firstElementChild.click();
  const down = column(5);
  table.tHead.rows[0].cells[5].firstElementChild.click();
  const style = getComputedStyle(document.body);
  const found = {
    width: innerWidth, scroll: document.documentElement.scrollWidth, outside, scrolling, charts, nodes,
    before, down, up: column(5), images: document.images.length, hit: window.hit === true,
    ink: style.color, paper: style.backgroundColor,
    soft: getComputedStyle(document.querySelector(".note")).color,
    thead: table.tHead.checkVisibility(),
  };
  const out = parent.document.createElement("pre");
  out.id = "probe";
  out.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(found))));
  parent.document.body.append(out);
}, 50));
