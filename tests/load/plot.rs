//! A plot of what a knob changes, as SVG: four panels over the same values.

use crate::args::{Args, Knob};
use crate::figures::Figures;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 240.0;
/// Between a panel's edge and its axes.
const MARGIN: f64 = 46.0;

/// A line of a panel: its name, its colour, and its value at each point.
struct Line(&'static str, &'static str, fn(&Figures) -> f64);

/// The panels: their titles and lines.
const PANELS: [(&str, &[Line]); 4] = [
    ("operations per second", &[Line("", "#1f6feb", |at| at.rate)]),
    (
        "share of operations, %",
        &[
            Line("unknown at first", "#d29922", |at| at.unknown * 100.0),
            Line("left to a human", "#cf222e", |at| at.left * 100.0),
        ],
    ),
    (
        "from a failed attempt to the next, ms",
        &[Line("median", "#1f6feb", |at| at.retry[0]), Line("95 %", "#8250df", |at| at.retry[1])],
    ),
    (
        "from enqueued to begun, ms",
        &[Line("median", "#1f6feb", |at| at.claim[0]), Line("95 %", "#8250df", |at| at.claim[1])],
    ),
];

/// The plot.
pub(crate) fn svg(args: &Args, knob: Knob, points: &[(u32, Figures)]) -> String {
    let (width, height) = (WIDTH * 2.0, HEIGHT * 2.0 + 30.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{}\" y=\"18\" text-anchor=\"middle\" font-size=\"13\">{} customers, {:.0} % of \
         requests fail, {}, over {}</text>\n",
        width / 2.0,
        args.customers,
        args.fail * 100.0,
        args.ledger.name(),
        knob.title(),
    );
    let places = [(0.0, 30.0), (WIDTH, 30.0), (0.0, 30.0 + HEIGHT), (WIDTH, 30.0 + HEIGHT)];
    for ((title, lines), (x, y)) in PANELS.iter().zip(places) {
        text.push_str(&format!("<g transform=\"translate({x} {y})\">\n"));
        text.push_str(&panel(title, lines, points));
        text.push_str("</g>\n");
    }
    text + "</svg>\n"
}

#[expect(clippy::cast_precision_loss, reason = "a handful of points")]
fn panel(title: &str, lines: &[Line], points: &[(u32, Figures)]) -> String {
    let top =
        lines.iter().flat_map(|line| points.iter().map(|(_, at)| line.2(at))).fold(0.0, f64::max);
    let top = round_up(top);
    let across = |index: usize| {
        let steps = points.len().max(2) - 1;
        MARGIN + (WIDTH - 2.0 * MARGIN) * index as f64 / steps as f64
    };
    let up = |value: f64| HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * value / top;
    let mut text = format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{title}</text>\n",
        WIDTH / 2.0,
        MARGIN - 16.0
    );
    for quarter in 0..=4 {
        let value = top * f64::from(quarter) / 4.0;
        text.push_str(&format!(
            "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#d0d7de\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n",
            WIDTH - MARGIN,
            MARGIN - 6.0,
            up(value) + 4.0,
            y = up(value),
        ));
    }
    for (index, (value, _)) in points.iter().enumerate() {
        text.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>\n",
            across(index),
            HEIGHT - MARGIN + 16.0
        ));
    }
    for (row, Line(name, colour, of)) in lines.iter().enumerate() {
        let path: Vec<String> = points
            .iter()
            .enumerate()
            .map(|(index, (_, at))| format!("{:.1},{:.1}", across(index), up(of(at))))
            .collect();
        text.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>\n",
            path.join(" "),
            WIDTH - MARGIN,
            MARGIN + 12.0 + 14.0 * row as f64,
        ));
    }
    text
}

/// The next number of the form 1, 2, 4 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    let mut power = 1.0;
    while power * 10.0 < value {
        power *= 10.0;
    }
    [1.0, 2.0, 4.0, 8.0, 10.0].map(|n| n * power).into_iter().find(|n| *n >= value).unwrap_or(1.0)
}
