// style.js: the look. THEME is what the element and our own page share, STYLE is the element's alone.
// Other pages change it through the custom properties and ::part().

export const THEME = `
:root, :host {
  --ground: var(--attention-map-background, light-dark(#fff, #11151b));
  --text: var(--attention-map-text, light-dark(#18202b, #e7ebf1));
  --accent: var(--attention-map-accent, light-dark(#1d5bb8, #86b7ff));
  --on: light-dark(#fff, #0b1420);
  --panel: light-dark(#f5f6f8, #191f27);
  --soft: light-dark(#e6ecf5, #253246);
  --muted: light-dark(#566274, #9caabb);
  --line: light-dark(#d3d8e0, #37414e);
  color-scheme: light dark; color: var(--text); background: var(--ground);
  font: 14px/1.45 var(--attention-map-font, system-ui, sans-serif); }
:root[theme=light], :host([theme=light]) { color-scheme: light; }
:root[theme=dark], :host([theme=dark]) { color-scheme: dark; }
@media (prefers-contrast: more) { :root, :host { --muted: var(--text); --line: var(--text); } }
@media (forced-colors: active) { :root, :host {
  --ground: Canvas; --panel: Canvas; --soft: Canvas; --text: CanvasText; --muted: CanvasText;
  --line: CanvasText; --accent: Highlight; --on: HighlightText; } }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
.bar { display: flex; flex-wrap: wrap; gap: 8px 10px; align-items: center; }
.grow { flex: 1; }
button, select, summary, textarea, input:not([type=checkbox]) { font: inherit; color: var(--text);
  background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: 3px 10px;
  min-height: 32px; max-width: 100%; }
select { text-overflow: ellipsis; }
button, summary { cursor: pointer; }
button:hover, summary:hover { background: var(--soft); }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; }
label { display: inline-flex; gap: 6px; align-items: center; color: var(--muted); }
small { color: var(--muted); font-weight: 400; }
h2 { font-size: 17px; margin: 0 0 8px; }
dialog { background: var(--ground); color: var(--text); border: 1px solid var(--line);
  border-radius: 12px; width: 640px; max-width: 94vw; padding: 20px 24px; }
dialog p { margin: 10px 0; }
@media (max-width: 760px) { .grow { display: none; } }
@media (prefers-reduced-motion: no-preference) { button, summary { transition: background-color .12s; } }
`;

export const STYLE = `
:host { display: flex; flex-direction: column; gap: 10px; min-height: 420px; box-sizing: border-box; }
:host([hidden]), :host([controls=none]) .bar { display: none; }
.tabs { display: flex; border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tabs button { border: 0; border-radius: 0; padding: 4px 11px; }
.tabs button + button { border-inline-start: 1px solid var(--line); }
.tabs button[aria-selected=true] { background: var(--accent); color: var(--on); }
.tabs button:focus-visible { outline: 2px solid; outline-offset: -5px; }
select { max-width: 150px; }
.bar .bar select { max-width: 100px; }
details { position: relative; }
summary { list-style: none; display: flex; align-items: center; user-select: none; }
summary::-webkit-details-marker { display: none; }
summary::after { content: "▾"; color: var(--muted); margin-inline-start: 6px; }
summary[data-count]::before { content: attr(data-count); color: var(--accent); font-weight: 600;
  margin-inline-end: 6px; }
.menu { position: absolute; inset-inline-end: 0; top: calc(100% + 4px); z-index: 5; padding: 12px;
  width: 300px; max-width: 88vw; display: grid; gap: 8px; background: var(--ground);
  border: 1px solid var(--line); border-radius: 10px; box-shadow: 0 8px 28px #0004; }
.menu label { justify-content: space-between; }
.menu input[type=number] { width: 110px; }
.menu input[type=text] { width: 164px; min-width: 0; }
.menu button { text-align: start; }
.menu div { display: grid; grid-auto-flow: column; grid-auto-columns: 1fr; gap: 6px; }
.menu p, .note, .legend, .pane > span, caption, h3, kbd { color: var(--muted); font-size: 12.5px;
  margin: 0; }
.heads { display: flex; gap: 6px; overflow-x: auto; padding: 4px; margin: -4px; scrollbar-width: thin;
  flex: none; }
.head { display: grid; gap: 2px; justify-items: center; padding: 3px; min-width: 46px; flex: none;
  font-size: 11.5px; line-height: 1.2; }
.head canvas, .preview { width: 38px; height: 38px; object-fit: contain; image-rendering: pixelated;
  border-radius: 3px; display: block; background: var(--panel); }
.head[aria-pressed=true] { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent);
  background: var(--soft); font-weight: 600; }
.head.chosen { border-style: dashed; border-color: var(--accent); }
.body { display: grid; grid-template-columns: minmax(0, 1fr) 270px; gap: 14px; flex: 1; min-height: 0; }
.left { display: flex; flex-direction: column; gap: 8px; min-width: 0; min-height: 0; }
.stage { position: relative; flex: 1; min-height: 280px; border-radius: 10px; overflow: hidden;
  touch-action: none; }
.stage .pane, .pane canvas, .scroll { position: absolute; inset: 0; }
.pane canvas { width: 100%; height: 100%; }
.stage[data-compare=side] .pane.a { inset-inline-end: 50%; }
.stage[data-compare=side] .pane.b { inset-inline-start: 50%; }
.pane > span { position: absolute; left: 6px; top: 2px; z-index: 1; pointer-events: none; }
.scroll { overflow: auto; }
.scroll, .stage[data-view=grid], .stage[data-view=tokens] { touch-action: auto; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(132px, 1fr)); gap: 10px;
  padding: 4px; }
.grid > span { color: var(--muted); font-size: 12px; place-self: center; white-space: nowrap; }
.grid.few { grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); }
.grid .head { font-size: 13px; padding: 7px; }
.grid .head canvas, .preview { width: 100%; height: auto; aspect-ratio: 1; }
.tokens { padding: 14px; font-size: 18px; line-height: 1.6; }
hr { border: solid var(--line); border-width: 1px 0 0; margin: 10px 6px; }
.tokens h3 { font-weight: 500; margin: 6px 0 2px; }
.tokens span { display: inline-block; max-width: 100%; padding: 1px 6px; margin: 3px 1px;
  border-radius: 5px; cursor: pointer; white-space: pre-wrap; overflow-wrap: anywhere; }
.tokens .query { outline: 2px solid var(--text); outline-offset: 1px; font-weight: 600; }
.tokens .key { text-decoration: underline 2px; text-underline-offset: 5px; }
.tokens .masked, .swatch { color: var(--muted);
  background-image: repeating-linear-gradient(135deg, var(--line) 0 1px, transparent 1px 5px); }
.legend { display: flex; align-items: flex-start; gap: 10px; flex-wrap: wrap; min-height: 44px;
  flex: none; }
.colours { position: relative; width: min(320px, 100% - 12px); height: 40px; flex: none;
  margin: 3px 8px 0 6px; }
.colours canvas { width: 100%; height: 12px; border-radius: 3px; display: block;
  border: 1px solid var(--line); }
.colours output { position: absolute; top: 20px; transform: translateX(-50%); white-space: nowrap; }
.colours output:first-of-type { transform: none; }
.colours output:last-of-type { transform: translateX(-100%); }
.handle { position: absolute; top: -3px; width: 12px; height: 19px; min-height: 0; padding: 0;
  margin-inline-start: -6px; border: 2px solid var(--text); border-radius: 4px; cursor: ew-resize;
  touch-action: none; }
.swatch { display: inline-block; width: 16px; height: 12px; vertical-align: -1px;
  border: 1px solid var(--line); }
.side { display: flex; flex-direction: column; gap: 10px; min-width: 0; overflow: auto; padding: 14px;
  background: var(--panel); border-radius: 10px; scrollbar-width: thin; }
.side, .message { overflow-wrap: anywhere; }
.side h2 { font-size: 13px; font-weight: 500; margin: 0; color: var(--muted); }
.where { font-size: 15px; }
.value { font-size: 27px; line-height: 1.15; }
.value, output, dd, td { font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 1px 10px; margin: 0; }
dt { color: var(--muted); }
dd { margin: 0; text-align: end; }
table { border-collapse: collapse; width: 100%; font-size: 13px; table-layout: fixed; }
caption { text-align: start; padding-bottom: 4px; }
th, td { font-weight: 400; text-align: start; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
tr :last-child { text-align: end; }
thead, td:first-child { color: var(--muted); }
th:first-child { width: 34px; }
thead th:last-child { width: 112px; }
tbody tr:hover { background: var(--soft); cursor: pointer; }
tbody tr[aria-current] { background: var(--soft); color: var(--accent); }
.message { border-inline-start: 4px solid #c2410c; background: var(--panel); padding: 10px 14px;
  border-radius: 6px; }
.hue { display: inline-block; width: 16px; height: 4px; vertical-align: 3px; margin-inline: 8px 4px; }
.none { color: var(--muted); padding: 40px 12px; text-align: center; }
.spoken { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
dialog dd { text-align: start; }
kbd { font-family: inherit; border: 1px solid var(--line); border-radius: 4px; padding: 0 5px; }
@media (max-width: 760px) {
  .body { grid-template-columns: minmax(0, 1fr); }
  .stage { flex: none; min-height: 0; max-height: 94vh; aspect-ratio: 6/5; }
  .stage[data-compare=side] { aspect-ratio: 3/5; }
  .stage[data-compare=side] .pane.a { inset: 0 0 50%; }
  .stage[data-compare=side] .pane.b { inset: 50% 0 0; }
  .side { overflow: visible; }
  .preview { display: none; }
  .menu { inset-inline: 0 auto; }
  .grid, .grid.few { grid-template-columns: repeat(auto-fill, minmax(96px, 1fr)); }
}
@media (forced-colors: active) {
  .tabs [aria-selected=true], .colours canvas, .head canvas, .tokens span { forced-color-adjust: none; }
}
`;

/** A sheet to adopt: the policy of pages forbids styles in elements, but not these. */
export function sheet(text) {
    const made = new CSSStyleSheet();
    made.replaceSync(text);
    return made;
}
