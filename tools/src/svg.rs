//! A plot of lines, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
/// Room for what is beside the lines: left, right (the legend), top, bottom.
const MARGINS: [f64; 4] = [70.0, 260.0, 40.0, 50.0];
/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0, evenly.
    Linear,
    /// By factors.
    Logarithmic,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Where it goes, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Lines on two axes.
#[derive(Clone, Debug)]
pub struct Plot {
    pub title: String,
    /// Both axes, what is along them.
    pub labels: [String; 2],
    /// Both axes, how they go.
    pub scales: [Scale; 2],
    /// Marks of the first axis, with what is written there.
    pub marks: Vec<(f64, String)>,
    pub lines: Vec<Line>,
}

impl Plot {
    /// As a document of its own; `None` when there is nothing to show.
    #[must_use]
    pub fn svg(&self) -> Option<String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = points()
            .map(|point| point.0)
            .chain(self.marks.iter().map(|mark| mark.0));
        let [left, right, top, bottom] = MARGINS;
        let x = Axis::over(self.scales[0], across, [left, WIDTH - right])?;
        let y = Axis::over(
            self.scales[1],
            points().map(|point| point.1),
            [HEIGHT - bottom, top],
        )?;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        self.write(&mut text, &x, &y).ok()?;
        Some(text)
    }

    fn write(&self, out: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
        let [left, right, top, bottom] = MARGINS;
        let (right, bottom) = (WIDTH - right, HEIGHT - bottom);
        let middle = f64::midpoint(left, right);
        label(out, [middle, top - 16.0], "middle", &self.title)?;
        label(out, [middle, HEIGHT - 12.0], "middle", &self.labels[0])?;
        label(out, [left - 60.0, top - 16.0], "start", &self.labels[1])?;
        for (at, name) in &self.marks {
            let at = x.place(*at);
            rule(out, [at, at], [top, bottom])?;
            label(out, [at, bottom + 18.0], "middle", name)?;
        }
        for mark in y.marks() {
            let at = y.place(mark);
            rule(out, [left, right], [at, at])?;
            label(out, [left - 6.0, at + 4.0], "end", &short(mark))?;
        }
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let dashes = ["", "6 3", "2 3"][number / COLOURS.len() % 3];
            write!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" "
            )?;
            write!(out, "stroke-dasharray=\"{dashes}\" points=\"")?;
            for (across, up) in &line.points {
                write!(out, "{:.1},{:.1} ", x.place(*across), y.place(*up))?;
            }
            writeln!(out, "\"/>")?;
            for (across, up) in &line.points {
                let (cx, cy) = (x.place(*across), y.place(*up));
                writeln!(
                    out,
                    "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{colour}\"/>"
                )?;
            }
            let at = top + 8.0 + 18.0 * number as f64;
            let (from, to) = (right + 12.0, right + 36.0);
            write!(
                out,
                "<path d=\"M{from} {at}H{to}\" stroke=\"{colour}\" stroke-width=\"2\" "
            )?;
            writeln!(out, "stroke-dasharray=\"{dashes}\"/>")?;
            label(out, [to + 6.0, at + 4.0], "start", &line.name)?;
        }
        writeln!(out, "</svg>")
    }
}

fn rule(out: &mut String, x: [f64; 2], y: [f64; 2]) -> std::fmt::Result {
    let ([x1, x2], [y1, y2]) = (x, y);
    writeln!(
        out,
        "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>"
    )
}

fn label(out: &mut String, [x, y]: [f64; 2], anchor: &str, text: &str) -> std::fmt::Result {
    let text = escaped(text);
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    )
}

/// A text as it may stand between elements.
#[must_use]
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// A number as people read it on an axis.
fn short(number: f64) -> String {
    let rounded = (number * 1000.0).round() / 1000.0;
    rounded.to_string()
}

/// Where values lie.
#[derive(Clone, Copy, Debug)]
struct Axis {
    scale: Scale,
    values: [f64; 2],
    pixels: [f64; 2],
}

impl Axis {
    fn over(scale: Scale, values: impl Iterator<Item = f64>, pixels: [f64; 2]) -> Option<Self> {
        let fits = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let mut all: Vec<f64> = values.filter(fits).collect();
        all.sort_by(f64::total_cmp);
        let (least, greatest) = (*all.first()?, *all.last()?);
        let values = match scale {
            Scale::Linear => [least.min(0.0), greatest.max(least.min(0.0) + 1e-9) * 1.05],
            Scale::Logarithmic => [least, greatest.max(least * 2.0)],
        };
        Some(Self {
            scale,
            values,
            pixels,
        })
    }

    fn place(&self, value: f64) -> f64 {
        let along = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(self.values[0]).ln(),
        };
        let [from, to] = self.values.map(along);
        let part = (along(value) - from) / (to - from);
        self.pixels[0] + part * (self.pixels[1] - self.pixels[0])
    }

    /// Round values on it.
    fn marks(&self) -> Vec<f64> {
        let [least, greatest] = self.values;
        match self.scale {
            Scale::Linear => {
                let rough = (greatest - least) / 6.0;
                let power = 10_f64.powf(rough.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
                let step = steps
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                let count = ((greatest - least) / step) as usize;
                (0..=count)
                    .map(|number| least + number as f64 * step)
                    .collect()
            }
            Scale::Logarithmic => {
                let first = least.log10().floor() as i32;
                let powers = (first..first + 12).map(|power| 10_f64.powi(power));
                let marks = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * power));
                marks
                    .filter(|mark| (least..=greatest).contains(mark))
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        Plot {
            title: "a < b".into(),
            labels: ["bytes".into(), "Gbit/s".into()],
            scales: [Scale::Logarithmic, Scale::Linear],
            marks: vec![(64.0, "64".into()), (4096.0, "4k".into())],
            lines: vec![Line {
                name: "raw & fast".into(),
                points,
            }],
        }
    }

    #[test]
    fn points_lie_within_the_axes_and_text_is_escaped() {
        let svg = plot(vec![(64.0, 1.0), (512.0, 5.0), (4096.0, 10.0)]).svg();
        let svg = svg.expect("there is something to show");
        assert!(
            svg.contains("a &lt; b") && svg.contains("raw &amp; fast"),
            "{svg}"
        );
        // 64 and 4096 are the ends; 512 is half way between them by factors.
        assert!(
            svg.contains("cx=\"70.0\"") && svg.contains("cx=\"600.0\""),
            "{svg}"
        );
        assert!(svg.contains("cx=\"335.0\""), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_is_no_plot() {
        assert_eq!(plot(Vec::new()).svg(), None);
        assert_eq!(plot(vec![(1.0, f64::NAN)]).svg(), None);
    }

    #[test]
    fn marks_are_round_and_on_the_axis() {
        let axis = |scale, values: [f64; 2]| Axis::over(scale, values.into_iter(), [0.0, 1.0]);
        let marks = axis(Scale::Linear, [0.0, 17.0]).map(|axis| axis.marks());
        assert_eq!(marks, Some(vec![0.0, 5.0, 10.0, 15.0]));
        let marks = axis(Scale::Logarithmic, [3.0, 60.0]).map(|axis| axis.marks());
        assert_eq!(marks, Some(vec![5.0, 10.0, 20.0, 50.0]));
    }
}
