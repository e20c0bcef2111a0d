"""python3 bench/plot.py dense.csv > docs/speed.svg: how near to the roofline each shape comes, from `deepgemm bench --csv`.

A panel for each n x k, a bar for each m: the practical floor (the larger of bytes at 4.6 TB/s and operations at 1,550
TFLOPS) over the time. The mark across a bar is cuBLASLt's."""

import csv
import sys

WIDTH, HEIGHT, BAR, GAP, LEFT, TOP = 168, 150, 15, 4, 34, 40  # of a panel and what is in it, in pixels
COLUMNS = 4


def text(x, y, s, anchor='middle', size=10):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{s}</text>'


def panel(x, y, title, rows):
    out = [text(x + WIDTH / 2, y - 8, title, size=11)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        h = y + HEIGHT * (1 - share)
        out.append(f'<path d="M{x} {h}h{WIDTH - 12}" stroke="#ccc"/>')
        out.append(text(x - 4, h + 3, f'{share:.0%}', 'end', 8))
    for i, r in enumerate(rows):
        left = x + 4 + i * (BAR + GAP)
        ours, theirs = (float(r['floor_us']) / float(r[name]) for name in ('us', 'cublaslt_us'))
        out.append(f'<rect x="{left}" y="{y + HEIGHT * (1 - ours):.1f}" width="{BAR}" height="{HEIGHT * ours:.1f}"/>')
        out.append(f'<path d="M{left - 1} {y + HEIGHT * (1 - theirs):.1f}h{BAR + 2}" stroke="#d33" stroke-width="2"/>')
        out.append(text(left + BAR / 2, y + HEIGHT + 11, r['m'], size=7))
    return out


def main():
    panels = {}
    for r in csv.DictReader(open(sys.argv[1])):
        panels.setdefault(f'n = {r["n"]}, k = {r["k"]}', []).append(r)
    lines = -(-len(panels) // COLUMNS)
    w, h = COLUMNS * (WIDTH + LEFT) + 10, lines * (HEIGHT + TOP + 10) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" font-family="sans-serif" fill="#222">']
    out.append('<rect width="100%" height="100%" fill="#fff"/><g>')
    for i, (title, rows) in enumerate(panels.items()):
        bars = panel(LEFT + i % COLUMNS * (WIDTH + LEFT), TOP + i // COLUMNS * (HEIGHT + TOP + 10), title, rows)
        out += [b.replace('<rect ', '<rect fill="#37c" ') for b in bars]
    out.append(text(w - 10, h - 10, 'share of the practical floor, by m; red: cuBLASLt, tensor-wise FP8', 'end', 11))
    print('\n'.join(out + ['</g></svg>']))


if __name__ == '__main__':
    main()
