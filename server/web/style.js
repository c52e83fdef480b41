// style.js: the look of the element. Pages change it through the custom properties and ::part().

export const STYLE = `
:host { --ground:light-dark(#fff,#11151b); --panel:light-dark(#f5f6f8,#191f27);
  --soft:light-dark(#e6ecf5,#253246); --text:light-dark(#18202b,#e7ebf1);
  --muted:light-dark(#566274,#9caabb); --line:light-dark(#d3d8e0,#37414e);
  --accent:light-dark(#1d5bb8,#86b7ff); --on:light-dark(#fff,#0b1420);
  display:flex; flex-direction:column; gap:10px; min-height:420px; box-sizing:border-box;
  color-scheme:light dark;
  color:var(--attention-map-text,var(--text)); background:var(--attention-map-background,var(--ground));
  font:14px/1.45 var(--attention-map-font,system-ui,sans-serif); }
:host([hidden]) { display:none; }
:host([theme=light]) { color-scheme:light; } :host([theme=dark]) { color-scheme:dark; }
@media (prefers-contrast:more) { :host { --muted:var(--text); --line:var(--text); } }
:host { --ink:var(--attention-map-text,var(--text)); --bg:var(--attention-map-background,var(--ground));
  --act:var(--attention-map-accent,var(--accent)); }
* { box-sizing:border-box; }
[hidden] { display:none !important; }
.bar { display:flex; flex-wrap:wrap; gap:8px 12px; align-items:center; }
.tabs { display:flex; border:1px solid var(--line); border-radius:8px; overflow:hidden; }
button, select, input { font:inherit; color:inherit; }
button, select, summary, input[type=number], input[type=text] { min-height:32px; border:1px solid var(--line);
  border-radius:8px; background:var(--bg);
  padding:3px 10px; color:var(--ink); }
select { max-width:150px; } .bar .bar select { max-width:104px; }
select { text-overflow:ellipsis; }
button, summary { cursor:pointer; }
button:hover, summary:hover { background:var(--soft); }
button:disabled { opacity:.5; cursor:default; }
.tabs button { border:0; border-radius:0; padding:4px 13px; }
.tabs button + button { border-inline-start:1px solid var(--line); }
.tabs button[aria-selected=true] { background:var(--act); color:var(--on); }
:focus-visible { outline:3px solid var(--act); outline-offset:1px; }
.tabs button:focus-visible { outline-offset:-5px; outline-color:currentColor; outline-width:2px; }
label { display:inline-flex; gap:6px; align-items:center; color:var(--muted); }
label > * { color:var(--ink); }
.grow { flex:1; }
details { position:relative; }
summary { list-style:none; display:block; user-select:none; }
summary::-webkit-details-marker { display:none; }
summary::after { content:" ▾"; color:var(--muted); }
summary[data-count]::before { content:attr(data-count) " "; color:var(--act); font-weight:600; }
.menu { position:absolute; inset-inline-end:0; top:calc(100% + 4px); z-index:5; background:var(--bg);
  border:1px solid var(--line); border-radius:10px;
  padding:12px; width:290px; max-width:88vw; display:grid; gap:8px; box-shadow:0 8px 28px #0004; }
.menu label { justify-content:space-between; }
.menu label input[type=number] { width:110px; } .menu label input[type=text] { width:150px; min-width:0; }
.menu button { text-align:start; }
.menu p { margin:0; color:var(--muted); font-size:12.5px; }
.pair { display:grid; grid-template-columns:1fr 1fr; gap:6px; }
.three { display:grid; grid-template-columns:repeat(3,1fr); gap:6px; }
.heads { display:flex; gap:6px; overflow-x:auto; padding:4px; margin:-4px; scrollbar-width:thin; flex:none; }
.head { display:grid; gap:2px; justify-items:center; padding:3px; min-width:46px; min-height:0;
  border-radius:8px; font-size:11.5px; line-height:1.2; flex:none; }
.head canvas, .preview { width:38px; height:38px; object-fit:contain; image-rendering:pixelated;
  border-radius:3px; display:block; background:var(--panel); }
.head[aria-pressed=true] { border-color:var(--act); box-shadow:inset 0 0 0 1px var(--act);
  background:var(--soft); font-weight:600; }
.head.chosen { border-style:dashed; border-color:var(--act); }
.body { display:grid; grid-template-columns:minmax(0,1fr) 270px; gap:14px; flex:1; min-height:0; }
.left { display:flex; flex-direction:column; gap:8px; min-width:0; min-height:0; }
.stage { position:relative; flex:1; min-height:280px; border-radius:10px; outline-offset:2px; overflow:hidden;
  touch-action:none; }
.pane canvas { position:absolute; inset:0; width:100%; height:100%; display:block; }
.stage .pane { position:absolute; inset:0; }
.stage[data-view=compare] .pane { inset-inline-end:50%; }
.stage[data-view=compare] .pane.b { inset-inline:50% 0; }
.stage[data-compare=difference] .pane { inset-inline-end:0; }
.pane > span { position:absolute; left:6px; top:2px; color:var(--muted); font-size:12.5px; z-index:1;
  pointer-events:none; }
.scroll { position:absolute; inset:0; overflow:auto; touch-action:auto; }
.stage[data-view=grid], .stage[data-view=tokens] { touch-action:auto; }
.grid { display:grid; grid-template-columns:repeat(auto-fill,minmax(132px,1fr)); gap:10px; padding:4px;
  align-content:start; }
.grid.few { grid-template-columns:repeat(auto-fill,minmax(190px,1fr)); }
.grid .head { font-size:13px; padding:7px; width:100%; }
.grid .head canvas, .preview { width:100%; height:auto; aspect-ratio:1; }
.grid small { color:var(--muted); font-weight:400; }
.tokens { padding:14px; font-size:18px; line-height:2.05; align-content:start; }
.tokens h3 { font-size:12.5px; color:var(--muted); font-weight:500; margin:6px 0 2px; line-height:1.4; }
.tokens span { padding:3px 6px; margin:0 1px; border-radius:5px; cursor:pointer; white-space:pre-wrap;
  overflow-wrap:anywhere; }
.tokens span.query { outline:2px solid var(--ink); outline-offset:1px; font-weight:600; }
.tokens span.key { text-decoration:underline 2px; text-underline-offset:5px; }
.tokens span.masked {
  background-image:repeating-linear-gradient(135deg,var(--line) 0 1px,transparent 1px 5px);
  color:var(--muted); }
.legend { display:flex; align-items:flex-start; gap:10px; flex-wrap:wrap; color:var(--muted);
  font-size:12.5px;  min-height:44px; flex:none; }
.colours { position:relative; width:min(320px,100% - 12px); height:40px; flex:none; margin:3px 8px 0 6px; }
.colours canvas { width:100%; height:12px; border-radius:3px; display:block; border:1px solid var(--line); }
.colours output { position:absolute; top:20px; transform:translateX(-50%); white-space:nowrap;
  font-variant-numeric:tabular-nums; color:var(--muted); }
.colours output:first-of-type { transform:none; }
.colours output:last-of-type { transform:translateX(-100%); }
.handle { position:absolute; top:-3px; width:12px; height:19px; margin-inline-start:-6px; border-radius:4px;
  border:2px solid var(--ink); background:var(--bg); cursor:ew-resize;
  touch-action:none; padding:0; min-height:0; }
.swatch { display:inline-block; width:16px; height:12px; vertical-align:-1px; border:1px solid var(--line);
  background:repeating-linear-gradient(135deg,var(--line) 0 1px,transparent 1px 4px); }
.side { display:flex; flex-direction:column; gap:10px; min-width:0; overflow:auto; background:var(--panel);
  border-radius:10px; padding:14px; scrollbar-width:thin; }
.side h2 { font-size:13px; font-weight:500; margin:0; color:var(--muted); overflow-wrap:anywhere; }
.side .where { font-size:15px; color:var(--ink); overflow-wrap:anywhere; }
.side .value { font-size:27px; line-height:1.15; font-variant-numeric:tabular-nums; overflow-wrap:anywhere; }
.side .note { color:var(--muted); font-size:12.5px; margin:0; }
dl { display:grid; grid-template-columns:auto 1fr; gap:1px 10px; margin:0; }
dt { color:var(--muted); }
dd { margin:0; text-align:end; font-variant-numeric:tabular-nums; overflow-wrap:anywhere; }
table { border-collapse:collapse; width:100%; font-size:13px; table-layout:fixed; }
caption { text-align:start; color:var(--muted); padding-bottom:4px; overflow-wrap:anywhere; }
th { font-weight:400; text-align:start; overflow:hidden; text-overflow:ellipsis; white-space:nowrap; }
td { text-align:end; font-variant-numeric:tabular-nums; white-space:nowrap; }
thead th { color:var(--muted); font-size:12px; }
thead th:first-child, tbody td:first-child { width:34px; text-align:start; color:var(--muted); }
thead th:last-child { text-align:end; width:112px; }
tbody tr:hover { background:var(--soft); cursor:pointer; }
tbody tr[aria-current] { background:var(--soft); color:var(--act); }
.message { border-inline-start:4px solid #c2410c; background:var(--panel); padding:10px 14px;
  border-radius:6px; overflow-wrap:anywhere; }
.hue { display:inline-block; width:16px; height:4px; vertical-align:3px; margin-inline:8px 4px; }
.none { color:var(--muted); padding:40px 12px; text-align:center; }
.spoken { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%);
  white-space:nowrap; }
dialog { background:var(--bg); color:var(--ink); border:1px solid var(--line); border-radius:12px;
  max-width:560px; padding:20px 24px; }
dialog h2 { margin:0 0 8px; font-size:17px; }
dialog p { margin:8px 0; }
dialog dl { gap:4px 14px; }
dialog dd { text-align:start; }
kbd { font:inherit; font-size:12.5px; border:1px solid var(--line); border-radius:4px; padding:0 5px;
  background:var(--panel); }
:host([controls=none]) .bar { display:none; }
@media (max-width:760px) {
  .body { grid-template-columns:minmax(0,1fr); }
  .stage { flex:none; min-height:0; max-height:94vh; aspect-ratio:6/5; }
  .stage[data-compare=side] { aspect-ratio:3/5; }
  .stage[data-compare=side] .pane.a { inset:0 0 50%; }
  .stage[data-compare=side] .pane.b { inset:50% 0 0; }
  .side { overflow:visible; }
  .tabs button { padding:4px 10px; }
  .grow { display:none; }
  .menu { inset-inline:0 auto; }
  .grid { grid-template-columns:repeat(auto-fill,minmax(96px,1fr)); }
}
@media (forced-colors:active) { :host { --ground:Canvas; --panel:Canvas; --soft:Canvas; --text:CanvasText;
  --muted:CanvasText; --line:CanvasText; --accent:Highlight; --on:HighlightText; }
  .tabs button[aria-selected=true], .colours canvas, .head canvas { forced-color-adjust:none; }
.tokens span { forced-color-adjust:none; } }
@media (prefers-reduced-motion:no-preference) { button, summary { transition:background-color .12s; } }
`;
