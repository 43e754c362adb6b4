"""The style sheet of a step shown as HTML. Every rule stands under the id of its output, so that it changes no other.

Colours are the page's own (`currentColor`, thinned), but for those of the bars.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlkit.plots.shared import PALETTE

UP, DOWN = PALETTE[0], PALETTE[3]
"""Blue and vermilion, told apart by the colour-blind; both stand out from white and from black."""

SHEET = """
#U{position:relative;color:inherit;background:transparent;line-height:1.4;font-size:14px;max-width:100%;
--h:26px;--dim:color-mix(in srgb,currentColor 35%,transparent);--faint:color-mix(in srgb,currentColor 14%,transparent)}
#U fieldset{border:1px solid var(--dim);border-radius:6px;padding:.3em .8em .6em;margin:0;min-width:0;color:inherit}
#U legend{padding:0 .4em;width:auto;font-size:inherit;color:inherit;border:0;margin:0}
#U input{position:absolute;opacity:0;width:1px;height:1px;margin:0}
#U label{display:inline-block;white-space:nowrap;margin:.3em .9em .3em 0;
cursor:pointer;color:inherit;font-weight:normal}
#U label::before{content:"\\25CB\\A0"}
#U input:checked+label{font-weight:bold;text-decoration:underline}
#U input:checked+label::before{content:"\\25C9\\A0"}
#U input:focus-visible+label{outline:2px solid UP;outline-offset:2px}
#U p,#U .k{margin:.3em 0}
#U .k{display:none}
#U .k span{display:inline-block;vertical-align:top;margin-left:.6em}
#U .c{border-top:1px solid var(--dim);margin-top:.7em;padding-top:.5em}
#U .p{display:inline-block;vertical-align:top;max-width:100%;box-sizing:border-box;white-space:pre-wrap;
overflow-wrap:anywhere;font-family:monospace;border:1px solid var(--dim);border-radius:4px;padding:0 .4em}
#U bdi{overflow-wrap:anywhere}
#U table{border-collapse:collapse;border:0;margin:.4em 0 0;width:auto;table-layout:auto;
font-size:inherit;color:inherit}
#U tr,#U tr:hover{background:transparent;border:0;color:inherit}
#U th,#U td{text-align:left;vertical-align:top;padding:.2em .6em .2em 0;border:0;border-bottom:1px solid var(--faint);
max-width:none;white-space:normal;background:transparent;color:inherit;font-weight:normal}
#U thead th{font-size:12px;border-bottom:1px solid var(--dim);vertical-align:bottom}
#U .c thead th:last-child{padding-left:19px}
#U td.n{font-variant-numeric:tabular-nums}
#U .w{white-space:nowrap;min-width:7.4em}
#U td.s{width:100%;padding:.2em 0 .2em 16px;border-left:3px solid transparent}
#U .out .s{border-left:3px dashed currentColor;
background:radial-gradient(currentColor 1px,transparent 1.5px) 0 0/6px 6px repeat-y,
radial-gradient(currentColor 1px,transparent 1.5px) 6px 3px/6px 6px repeat-y}
#U .still .s{border-left:3px dotted var(--dim)}
#U .trained .w{font-weight:bold}
#U .t{--v:0;--b:0px;--u:0px;display:inline-block;line-height:20px;vertical-align:top;
white-space:pre;font-family:monospace;text-align:center;min-width:.75em;
padding:0 1px calc(var(--h) + 2px);margin:0 1px 1px 0;unicode-bidi:isolate;
background:
linear-gradient(UP 0 0) 0 calc(100% - var(--b))/100% calc(max(0,var(--v))*var(--u)) no-repeat,
repeating-linear-gradient(135deg,DOWN 0 2.5px,transparent 2.5px 4px)
0 calc(100% - var(--b) + max(0,0 - var(--v))*var(--u))/100% calc(max(0,0 - var(--v))*var(--u)) no-repeat,
linear-gradient(var(--dim) 0 0) 0 calc(100% - var(--b))/100% 1px no-repeat;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
#U .e{font-size:11px;text-decoration:underline dotted}
#U .o{overflow-x:auto}
#U .o .t{min-width:3.4em}
#U .g{font-style:italic;white-space:normal}
#U details{margin-top:.6em}
@container rlk (max-width:640px){
#U .c table,#U .c tbody{display:block}
#U .c thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
#U .c tr{display:flex;flex-wrap:wrap;padding:.2em 0;border-bottom:1px solid var(--faint)}
#U .c tbody th,#U .c td{border-bottom:0}
#U .c [data-c]::before{content:attr(data-c) " ";opacity:.8}
#U .c td.s{flex-basis:100%}}
#U{container:rlk/inline-size}
"""

CHOICE = """
#U #UL:checked~div .kL{display:block}
#U #UL:checked~div .t{--v:var(--L,0);--b:BASE;--u:UNIT}
"""


def style(uid: str, signed: Mapping[str, bool]) -> str:
    """The style sheet of one output.

    Args:
        uid: the output's id.
        signed: for each quantity's letter, whether it has bars down; then half the room is theirs.
    """
    sheet = SHEET.replace("UP", UP).replace("DOWN", DOWN)
    for letter, both in signed.items():
        base, unit = ("calc(var(--h)/2)", "var(--h)/200") if both else ("0px", "var(--h)/100")
        sheet += CHOICE.replace("L", letter).replace("BASE", base).replace("UNIT", unit)
    return sheet.replace("#U", f"#{uid}")
