"""The page's template, style and script.

Text in a module rather than files beside it: a code bundle that carries this package carries its modules, and nothing else.
"""
# ruff: noqa: E501

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE", "TEMPLATE"]

STYLE = r"""
.fla{--fg:#1f2328;--soft:#57606a;--line:#d1d9e0;--bg:#fff;--panel:#f6f8fa;--bad:#b42318;--old:#0550ae;--new:#116329;--in:#4a7fc1;--out:#c4661f;--warn:#8a4b0b;
color-scheme:light;color:var(--fg);background:var(--bg);font:14px/1.5 system-ui,sans-serif;max-width:68rem;margin:0 auto;padding:.5rem;text-align:start}
@media(prefers-color-scheme:dark){.fla{--fg:#e6edf3;--soft:#9ea7b3;--line:#3d444d;--bg:#0d1117;--panel:#161b22;--bad:#ff8a80;--old:#79c0ff;--new:#7ee787;--in:#6ea0dd;--out:#e0904f;--warn:#f0a868;color-scheme:dark}
body:has(#flyte-frame-container>.active>.fla){background:#0d1117}
body:has(#flyte-frame-container>.active>.fla) #flyte-frame-tabs li{color:#9ea7b3}
body:has(#flyte-frame-container>.active>.fla) #flyte-frame-tabs li.active{color:#e6edf3}}
body:has(.fla) #flyte-frame-tabs{flex-wrap:wrap}
body:has(.fla) #flyte-frame-tabs li{overflow-wrap:anywhere}
#flyte-frame-container>div.active:has(>.fla){padding:.5rem 0}
.fla *{box-sizing:border-box}
.fla h2{font-size:1.25rem;line-height:1.3;margin:0;overflow-wrap:anywhere}
.fla h3{font-size:1rem;margin:1.25rem 0 .5rem}
.fla p{margin:.25rem 0}
.fla .soft,.fla small,.fla q{color:var(--soft)}
.fla small{font-size:.857em}
.fla .bad>dt,.fla h2.bad,.fla li.bad>details>summary>b,.fla li.bad>.line>b{color:var(--bad)}
.fla dl{margin:0}
.fla dt{color:var(--soft);font-size:.857em}
.fla dd{margin:0 0 .35rem;overflow-wrap:anywhere}
.fla .said>div{background:var(--panel);border-left:3px solid var(--line);border-radius:0 4px 4px 0;padding:.4rem .75rem;margin:.5rem 0}
.fla .said>.bad{border-color:var(--bad)}
.fla .said dd,.fla ol dd{white-space:pre-wrap;unicode-bidi:plaintext}
.fla .sums{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(9rem,45%),1fr));gap:.5rem;margin:.75rem 0}
.fla .sums>div{border:1px solid var(--line);border-radius:6px;padding:.4rem .75rem}
.fla .sums dd{margin:0}
.fla .sums dt+dd{font-size:1.25rem;font-weight:600}
.fla .sums dd.soft{font-size:.857em}
.fla figure{margin:.75rem 0}
.fla svg{display:block;width:100%;height:5rem;border-bottom:1px solid var(--line)}
.fla path{stroke-width:1.5;vector-effect:non-scaling-stroke}
.fla path.in{fill:var(--in);stroke:var(--in)}
.fla path.out{fill:var(--out);stroke:var(--out)}
.fla path.bad{fill:var(--bad)}
.fla .hollow path{fill:none}
.fla .key{white-space:nowrap;margin-left:.5em}
.fla .key::before{content:"";display:inline-block;width:.7em;height:.7em;margin-right:.3em;border:1.5px solid var(--in)}
.fla .key.in::before{background:var(--in)}
.fla .key.out::before{background:var(--out);border-color:var(--out)}
.fla .ends{display:flex;justify-content:space-between;font-size:.857em}
.fla .wide{overflow-x:auto}
.fla table{border-collapse:collapse;width:100%}
.fla th,.fla td{border-bottom:1px solid var(--line);padding:.25rem .75rem .25rem 0;text-align:start;vertical-align:top;font-weight:400;white-space:nowrap}
.fla thead th{color:var(--soft);font-size:.857em}
.fla td small{display:block;min-width:9rem;white-space:normal;overflow-wrap:anywhere;font-weight:400}
.fla .now th,.fla .now td{font-weight:600}
.fla code{overflow-wrap:anywhere}
.fla .bar{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;padding:.25rem 0}
.fla .bar[hidden]{display:none}
.fla input,.fla button{font:inherit;color:inherit}
.fla input[type=search]{flex:1 1 12rem;min-width:0;padding:.3rem .5rem;border:1px solid var(--soft);border-radius:6px;background:var(--bg)}
.fla button{padding:.3rem .6rem;border:1px solid var(--line);border-radius:6px;background:var(--panel);cursor:pointer}
.fla :focus-visible{outline:2px solid var(--old);outline-offset:1px}
.fla ol{list-style:none;margin:0;padding:0}
.fla ol ol{margin-left:.5rem;padding-left:.5rem;border-left:1px solid var(--line)}
.fla li{border-top:1px solid var(--line);padding:.3rem 0}
.fla li li:first-child{border-top:0}
.fla .code{font-family:ui-monospace,monospace;font-size:.929em}
.fla li[hidden],.fla .group[hidden]{display:none}
.fla .gap{color:var(--soft);padding:.6rem 0;text-align:center}
.fla summary{cursor:pointer;overflow-wrap:anywhere}
.fla .line{padding-left:1rem;overflow-wrap:anywhere}
.fla i{font-style:normal;font-size:.786em;border:1px solid;border-radius:1rem;padding:0 .5em;white-space:nowrap}
.fla i.bad{color:var(--bad)}
.fla i.old{color:var(--old);border-style:dashed}
.fla i.new{color:var(--new)}
.fla i.open{color:var(--soft)}
.fla i.again{color:var(--warn)}
.fla q{quotes:none}
.fla q,.fla b,.fla small{unicode-bidi:isolate}
.fla details[open]>summary>q{display:none}
.fla ol dl{padding:.25rem 0 0 1rem}
.fla .inner>summary,.fla .group>summary{color:var(--soft);padding:.3rem 0}
.fla .inner{margin-left:1rem}
.fla .group>summary b{color:var(--fg)}
""".lstrip()

SCRIPT = r"""
(() => {
  const setUp = (root) => {
    const bar = root.querySelector('.bar')
    const [search, failures] = bar.querySelectorAll('input')
    const [openAll, closeAll] = bar.querySelectorAll('button')
    const output = bar.querySelector('output')
    const steps = [...root.querySelectorAll('li')]
    const folds = [...root.querySelectorAll('details')]
    const groups = [...root.querySelectorAll('.group')]
    let before = null // what was open before the search began
    const show = () => {
      const words = search.value.trim().toLowerCase()
      const active = words !== '' || failures.checked
      if (active && before === null) before = folds.map((fold) => fold.open)
      let found = 0
      for (const step of steps) {
        const matches = (!failures.checked || step.matches('.bad,:has(.bad)'))
          && (words === '' || step.textContent.toLowerCase().includes(words))
        step.hidden = active && !matches
        if (matches) found += 1
      }
      for (const group of groups) group.hidden = active && !group.querySelector('li:not([hidden])')
      if (active) for (const fold of folds) fold.open = words !== '' ? fold.textContent.toLowerCase().includes(words) : true
      else if (before !== null) folds.forEach((fold, index) => { fold.open = before[index] })
      if (!active) before = null
      output.textContent = active ? `${found} of ${steps.length} steps` : ''
    }
    let timer = 0
    search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(show, 150) })
    failures.addEventListener('change', show)
    openAll.addEventListener('click', () => { for (const fold of folds) fold.open = true })
    closeAll.addEventListener('click', () => { for (const fold of folds) fold.open = false })
    bar.hidden = steps.length < 6
  }
  // Flyte's own tabs are list items that only a mouse can reach.
  const setUpTabs = () => {
    const tabs = [...document.querySelectorAll('#flyte-frame-tabs li')]
    const select = () => { for (const tab of tabs) tab.setAttribute('aria-selected', tab.classList.contains('active')) }
    for (const tab of tabs) {
      tab.parentElement.setAttribute('role', 'tablist')
      tab.setAttribute('role', 'tab')
      tab.tabIndex = 0
      tab.addEventListener('click', () => setTimeout(select))
      tab.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); tab.click() }
      })
    }
    select()
  }
  const start = () => {
    if (!document.documentElement.lang) document.documentElement.lang = 'en'
    document.querySelectorAll('.fla').forEach(setUp)
    setUpTabs()
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start)
  else start()
})()
""".lstrip()

TEMPLATE = r"""
{% macro text(block, excerpt) -%}
{% if block.text.hidden %}<span class="soft">{{ block.text.bytes|size }}, SHA-256 {{ block.text.sha256[:16] }}</span>
{%- else %}{{ excerpt.text }}{% if excerpt.more %}<span class="soft"> … {{ excerpt.more|count("more character") }}</span>{% endif %}
{% endif %}
{%- endmacro %}

{% macro head(line) -%}
{% set step = line.step %}
<b>{{ step.kind }}{% if step.number %} {{ step.number }}{% endif %}{% if step.title %} · {{ step.title }}{% endif %}</b>
{%- if step.state|state %} <i class="{{ 'bad' if step.state == 'failed' else 'open' }}">{{ step.state|state }}</i>{% endif %}
{%- if step.replayed %} <i class="old">replayed</i>{% elif mixed and step.fresh %} <i class="new">fresh</i>{% endif %}
{%- if step.repeated %} <i class="again">run again</i>{% endif %}
 <small>{{ line.facts|join(" · ") }}</small>
{%- if line.excerpt %} <q>{{ line.excerpt }}</q>{% endif %}
{%- endmacro %}

{% macro item(line) -%}
{% if not line.step %}
<li class="gap">… {{ line.left_out|count("step") }} left out here, to keep this page small …
{%- else %}
<li{% if line.step.state == "failed" %} class="bad"{% elif line.step.replayed %} class="old"{% endif %}>
{%- if line.blocks %}<details{{ " open" if line.open }}><summary>{{ head(line) }}</summary><dl>
{%- for block, excerpt in line.blocks %}<dt>{{ block.label }}{% if block.note %} <small>{{ block.note }}</small>{% endif %}<dd dir="auto"{% if line.step.kind == "Tool" %} class="code"{% endif %}>{{ text(block, excerpt) }}
{%- endfor %}</dl></details>
{%- else %}<div class="line">{{ head(line) }}</div>{% endif %}
{%- if line.lines %}
{%- if line.step.kind == "Tool" %}<details class="inner" open><summary>{{ line.step.steps|length|count("step") }} inside of {{ line.step.title }}</summary>{{ items(line.lines) }}</details>
{%- else %}{{ items(line.lines) }}{% endif %}
{%- endif %}
{%- endif %}
{% endmacro %}

{% macro items(lines) %}<ol>{% for line in lines %}{{ item(line) }}{% endfor %}</ol>{% endmacro %}

<section class="fla" aria-label="Agent run {{ page.name }}">
{% if page.index == 0 %}<style>{{ style }}</style>{% endif %}
<header>
<h2{% if timeline.outcome == "failed" %} class="bad"{% endif %}>{{ page.name }}: {{ timeline.outcome }}</h2>
<p class="soft">{% if page.attempt.number %}Attempt {{ page.attempt.number }}{% if timeline.resumed %}, resumed from records{% endif %} · {% endif %}
began {{ page.attempt.started|moment }} · {% if timeline.outcome == "running" %}as of {{ updated|moment }}{% else %}took {{ page.attempt.seconds|duration }}{% endif %}</p>
</header>
<dl class="said">
{% for label, part in (("Input", input), ("Answer" if timeline.outcome != "failed" else "Error", answer)) if part %}
<div{% if label == "Error" %} class="bad"{% endif %}><dt>{{ label }}{% if part[0].note %} <small>{{ part[0].note }}</small>{% endif %}<dd dir="auto">{{ text(*part) }}</div>
{% endfor %}
</dl>
<dl class="sums">
<div><dt>Spent in this attempt<dd>{{ usage.fresh.total_tokens|number }} <small>tokens</small>
<dd class="soft">{{ usage.fresh.input_tokens|number }} in, {{ usage.fresh.output_tokens|number }} out
{%- if usage.fresh.cached_tokens %}, {{ usage.fresh.cached_tokens|number }} of the input cached{% endif %}
{%- if usage.fresh.reasoning_tokens %}, {{ usage.fresh.reasoning_tokens|number }} of the output reasoning{% endif %}
{% if totals.cost is not none %}
<dd class="soft">{{ "at least " if totals.unpriced }}{{ totals.cost|money }}{% if totals.unpriced %}; the price of {{ totals.unpriced|count("turn") }} is unknown{% endif %}
{% endif %}
</div>
{% if usage.replayed.requests or totals.replayed_turns %}
<div><dt>Replayed, not spent again<dd>{{ usage.replayed.total_tokens|number }} <small>tokens</small>
<dd class="soft">{{ usage.replayed.input_tokens|number }} in, {{ usage.replayed.output_tokens|number }} out, paid by an earlier attempt{% if totals.replayed_cost is not none %} ({{ totals.replayed_cost|money }}){% endif %}

</div>
{% endif %}
<div><dt>Turns<dd>{{ totals.turns|length|number }}
<dd class="soft">{{ (totals.turns|length - totals.replayed_turns)|number }} asked now{% if totals.replayed_turns %}, {{ totals.replayed_turns|number }} replayed{% endif %}{% if totals.failed_turns %}, {{ totals.failed_turns|number }} failed{% endif %}
</div>
<div><dt>Tool calls<dd>{{ totals.tool_calls|number }}
{% if totals.replayed_tool_calls or totals.failed_tool_calls or totals.repeated_tool_calls %}<dd class="soft">{{ [totals.replayed_tool_calls|number ~ " replayed" if totals.replayed_tool_calls, totals.failed_tool_calls|number ~ " failed" if totals.failed_tool_calls, totals.repeated_tool_calls|number ~ " run again" if totals.repeated_tool_calls]|select|join(", ") }}{% endif %}
</div>
<div><dt>Time<dd>{{ page.attempt.seconds|duration }}
<dd class="soft">{{ totals.model_seconds|duration }} in the model{% if totals.tool_calls %}, {{ totals.tool_seconds|duration }} in tools{% endif %}
</div>
</dl>
{% if chart %}
<figure>
<figcaption>Tokens by turn <small>the most is {{ chart.peak|number }}{% if chart.per_bar > 1 %}; a bar is {{ chart.per_bar }} turns{% endif %}

 <span class="key in">in</span> <span class="key out">out</span>{% if totals.replayed_turns %} <span class="key">hollow: replayed</span>{% endif %}</small></figcaption>
<svg viewBox="0 0 {{ chart.width }} {{ height }}" preserveAspectRatio="none" style="max-width:{{ chart.bars|length * 36 }}px" role="img" aria-label="{{ chart.label }}">
{% for bar in chart.bars %}
<g{% if bar.replayed %} class="hollow"{% endif %}><title>{{ bar.label }}</title><path class="in" d="M{{ bar.x }} {{ bar.input_y }}h10v{{ bar.input_height }}h-10z"/><path class="out" d="M{{ bar.x }} {{ bar.output_y }}h10v{{ bar.output_height }}h-10z"/>
{%- if bar.failed %}<path class="bad" d="M{{ bar.x }} {{ height - 3 }}h10v3h-10z"/>{% endif %}</g>
{% endfor %}
</svg>
<p class="soft ends" style="max-width:{{ chart.bars|length * 36 }}px"><span>1</span><span>{{ totals.turns|length|number }}</span></p>
</figure>
{% endif %}
{% if attempts %}
{% set priced = attempts|selectattr("cost", "ne", none)|list %}
<h3>Attempts</h3>
<div class="wide" tabindex="0" role="group" aria-label="Attempts, a table that scrolls sideways">
<table>
<thead><tr><th scope="col">Attempt<th scope="col">Outcome<th scope="col">Turns<th scope="col">Tool calls<th scope="col">Tokens spent
{%- if priced %}<th scope="col">Cost{% endif %}<th scope="col">Took<th scope="col">Began</thead>
<tbody>
{% for attempt in attempts %}
{% set current = attempt.number == page.attempt.number %}
{% set open = not current and attempt.outcome == "running" %}
<tr{% if current %} class="now"{% endif %}><th scope="row">{{ attempt.number }}{% if current %} <small>(this one)</small>{% endif %}
<td>{% if open %}no outcome <small>it was ended from outside</small>{% else %}{{ attempt.outcome }}{% endif %}
{%- if attempt.error %} <small>{{ attempt.error[:200] if timeline.contents or not attempt.contents else "" }}</small>{% endif %}
<td>{{ attempt.turns|told(open) }}{% if attempt.replayed_turns %} <small>{{ attempt.replayed_turns|number }} replayed</small>{% endif %}
<td>{{ attempt.tool_calls|told(open) }}{% if attempt.failed_tool_calls %} <small>{{ attempt.failed_tool_calls|number }} failed</small>{% endif %}
<td>{{ attempt.fresh.total_tokens|told(open) }}
{%- if priced %}<td>{% if attempt.cost is not none %}{{ "at least " if attempt.unpriced or open }}{{ attempt.cost|money }}{% else %}{{ "unknown" if attempt.unpriced or open else 0|money }}{% endif %}{% endif %}
<td>{{ attempt.seconds|duration }}<td>{{ attempt.started|moment }}
{% endfor %}
</tbody>
</table>
</div>
<p class="soft">{% if page.unread %}{{ page.unread|count("attempt") }} more {{ "is" if page.unread == 1 else "are" }} not shown. {% endif %}
All of these together spent {{ "at least " if page.unread or attempts[:-1]|selectattr("outcome", "eq", "running")|list }}{{ page.spent(attempts|sum(attribute="fresh.total_tokens"))|number }} tokens
{%- if priced %}, {{ "at least " if attempts|selectattr("unpriced")|list }}{{ page.paid(priced|sum(attribute="cost"))|money }}{% endif %}.
{% if page.kept %}{{ page.kept|count("report") }} of earlier attempts {{ "is" if page.kept == 1 else "are" }} kept in <code>{{ page.reports }}</code>.{% endif %}</p>
{% endif %}
<h3>Timeline</h3>
<div class="bar" role="search" aria-label="Timeline" hidden>
<input type="search" aria-label="Search the timeline" placeholder="Search" autocomplete="off">
<label><input type="checkbox"> only failures</label>
<button type="button">Open all</button>
<button type="button">Close all</button>
<output role="status"></output>
</div>
{% if groups %}
{% for group in groups %}
{% if group.left_out %}<p class="gap">… {{ group.left_out|count("step") }} left out here, to keep this page small …</p>
{% else %}<details class="group"{{ " open" if group.open }}><summary><b>{{ group.title }}</b>{% if group.facts %} <small>{{ group.facts|join(" · ") }}</small>{% endif %}</summary>{{ items(group.lines) }}</details>
{% endif %}
{% endfor %}
{% elif lines %}
{{ items(lines) }}
{% else %}
<p class="soft">Nothing happened yet.</p>
{% endif %}
{% if page.index == 0 %}<script>{{ script }}</script>{% endif %}
</section>
""".lstrip()
