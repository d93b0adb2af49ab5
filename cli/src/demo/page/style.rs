//! How the report looks: on light and dark screens, wide and narrow, and on paper.
//!
//! One colour means one thing on the whole page: `--plain` is without foretell, `--hinted` is with.

/// The style sheet.
pub(super) const STYLE: &str = r#"
:root {
  color-scheme: light dark;
  --paper: #fcfbf8; --ink: #1d2126; --soft: #5d646d; --rule: #dedbd3; --card: #f4f2ec;
  --track: #ebe8e0; --below: #1d21260f; --plain: #b5500f; --hinted: #0b6b80; --alarm: #b3001b;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e9e7e2; --soft: #a0a7b0; --rule: #32373e; --card: #1c2026;
    --track: #23282f; --below: #ffffff12; --plain: #f19a5b; --hinted: #58c6dc; --alarm: #c9182f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans",
    sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1020px; margin: 0 auto; padding: 56px 28px 72px; }
h1 {
  font-size: 2.3rem; line-height: 1.18; letter-spacing: -0.018em; font-weight: 650;
  margin: 0 0 22px; max-width: 27em; text-wrap: balance;
}
h1 em { font-style: normal; white-space: nowrap; color: var(--hinted); }
h1 em.worse, .worse, .worse b { color: var(--alarm); }
h2 { font-size: 1.35rem; letter-spacing: -0.01em; line-height: 1.25; margin: 0 0 10px; }
h3 { font-size: 1rem; margin: 0 0 4px; }
p { margin: 0 0 12px; max-width: 44em; }
section { margin-top: 64px; }
code { font: 0.92em ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
.eyebrow { color: var(--soft); margin-bottom: 14px; }
.eyebrow b { color: var(--ink); }
.lead { font-size: 1.08rem; color: var(--soft); max-width: 46em; margin: 0; }
.lead code { color: var(--ink); }
.note { color: var(--soft); font-size: 0.88rem; margin: 14px 0 0; }
.alarm {
  background: #b3001b; color: #fff; border-radius: 6px; padding: 18px 22px; margin: 0 0 36px;
}
.alarm p { margin: 0; max-width: none; }
.alarm b { font-size: 1.3rem; display: block; }
.alarm ul { margin: 10px 0 0; padding-left: 1.2em; columns: 16em auto; }
.keys {
  list-style: none; margin: 34px 0 0; padding: 18px 0; display: grid; gap: 18px 28px;
  grid-template-columns: repeat(4, 1fr);
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule);
}
.keys b {
  display: block; font-size: 1.7rem; line-height: 1.2; font-weight: 600; white-space: nowrap;
}
.keys span {
  display: block; color: var(--soft); font-size: 0.9rem; line-height: 1.35; margin-top: 3px;
}
figure { margin: 0; }
figcaption { margin-bottom: 8px; color: var(--soft); font-size: 0.92rem; }
figcaption b { color: var(--ink); font-size: 1rem; margin-right: 6px; }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 36px 44px; margin-top: 22px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 12.5px; fill: var(--soft); }
text.end { text-anchor: end; }
text.cell { text-anchor: middle; fill: var(--ink); }
text.name { font-weight: 600; }
text.plain { fill: var(--plain); } text.hinted { fill: var(--hinted); }
text.bound { fill: var(--soft); } text.saved.cell { font-weight: 600; }
text.name.bound { fill: var(--ink); font-weight: 400; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }
.line.plain { stroke: var(--plain); } .line.hinted { stroke: var(--hinted); }
.line.bound { stroke: var(--ink); stroke-width: 1.4; stroke-dasharray: 5 4; stroke-linecap: butt; }
.dot { stroke: var(--paper); stroke-width: 1.2; }
.dot.plain { fill: var(--plain); } .dot.hinted { fill: var(--hinted); }
.dot.bound { fill: var(--ink); }
.below { fill: var(--below); }
.bars {
  display: grid; grid-template-columns: auto 1fr; gap: 3px 12px; align-items: center;
  font-size: 0.86rem;
}
.order { color: var(--soft); font-weight: 600; letter-spacing: 0.03em; }
.bar { display: flex; align-items: center; gap: 8px; white-space: nowrap; line-height: 20px; }
.bar svg { height: 18px; flex: none; min-width: 1px; }
.bar i { font-style: normal; color: var(--soft); }
.bar rect { fill: currentColor; }
b.again, svg.again, td.again { color: var(--soft); }
b.plain, svg.plain, td.plain { color: var(--plain); }
b.hinted, svg.hinted, td.hinted { color: var(--hinted); }
.bars > span:nth-child(4n) { margin-bottom: 10px; }
.bars.ways { gap: 9px 20px; margin-top: 20px; font-size: 0.92rem; }
.bars.ways > span:nth-child(4n) { margin-bottom: 0; }
.scale {
  display: flex; align-items: center; gap: 2px; color: var(--soft); font-size: 0.86rem;
  margin: 0;
}
.scale i { width: 20px; height: 12px; background: var(--hinted); }
.scale i:first-of-type { margin-left: 6px; } .scale i:last-of-type { margin-right: 6px; }
.scale i.track { background: var(--track); }
.busy { margin-top: 26px; }
.busy figcaption { margin: 0; }
.who { margin: 10px 0 5px; font-size: 0.92rem; color: var(--soft); }
.who b { margin-right: 4px; }
.strips { display: grid; grid-template-columns: 26px 1fr; }
.disknames { color: var(--soft); font-size: 10px; text-align: right; padding-right: 8px; }
.disknames span { display: block; }
.lanes { position: relative; min-width: 0; }
.lanes path { fill: none; stroke: currentColor; shape-rendering: crispEdges; }
.lanes path.track { stroke: var(--track); }
.strips.plain { color: var(--plain); } .strips.hinted { color: var(--hinted); }
.level1 { opacity: 0.22; } .level2 { opacity: 0.38; } .level3 { opacity: 0.54; }
.level4 { opacity: 0.7; } .level5 { opacity: 0.85; } .level6 { opacity: 1; }
.done {
  position: absolute; top: 0; bottom: 0; padding-left: 8px; border-left: 1.5px solid currentColor;
  display: flex; align-items: center; font-size: 0.86rem; font-weight: 600; white-space: nowrap;
}
.time {
  position: relative; height: 24px; margin: 6px 0 0 26px; border-top: 1px solid var(--rule);
  color: var(--soft); font-size: 0.8rem;
}
.time span { position: absolute; top: 2px; transform: translateX(-50%); }
.time span:first-child { transform: none; }
.scroll { overflow-x: auto; margin-top: 18px; }
table { border-collapse: collapse; width: 100%; font-size: 0.84rem; line-height: 1.3; }
th, td { padding: 4px 8px; text-align: right; vertical-align: top; }
thead th {
  color: var(--soft); font-weight: 500; vertical-align: bottom;
  border-bottom: 1px solid var(--soft);
}
th:first-child, tbody th { text-align: left; }
tbody th, td { white-space: nowrap; }
th[scope="row"] { font-weight: 400; }
tbody { border-bottom: 1px solid var(--rule); }
tbody tr:first-child > * { padding-top: 9px; } tbody tr:last-child td { padding-bottom: 9px; }
.ground { display: grid; grid-template-columns: repeat(3, 1fr); gap: 16px; margin: 16px 0 26px; }
.ground > div { background: var(--card); border-radius: 6px; padding: 16px 18px; }
.ground p { margin: 0; font-size: 0.92rem; line-height: 1.5; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 5px 22px; margin: 0 0 30px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.command { display: inline-block; background: var(--card); border-radius: 6px; padding: 9px 14px; }
footer {
  margin-top: 56px; padding-top: 14px; border-top: 1px solid var(--rule); color: var(--soft);
  font-size: 0.86rem;
}
@media screen and (max-width: 760px) {
  main { padding: 32px 18px 48px; }
  h1 { font-size: 1.6rem; }
  .keys { grid-template-columns: 1fr 1fr; }
  .plots, .ground, .bars.ways { grid-template-columns: 1fr; }
  .bars.ways { gap: 2px; } .bars.ways > .bar:nth-child(n) { white-space: normal; margin-bottom: 10px; }
  section { margin-top: 48px; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; }
}
@media print {
  @page { margin: 14mm; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  html { font-size: 12px; }
  body { font-size: 12px; background: #fff; }
  main { padding: 0; max-width: none; }
  .plots { gap: 18px 26px; margin-top: 14px; }
  section { margin-top: 28px; }
  h2, h3, .who { break-after: avoid; }
  figure, tbody, .ground, .keys, .alarm, dl { break-inside: avoid; }
  .scroll { overflow: visible; }
  th, td { padding: 1px 4px; }
}
"#;
