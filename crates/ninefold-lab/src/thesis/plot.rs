//! The figures, as SVG: seconds by the size of a file or by the number of clients, a line for each way.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// Of a picture, in pixels.
const SIZE: (u32, u32) = (860, 460);

#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub says: String,
    /// By what is on the horizontal axis; each above 0.
    pub points: Vec<(f64, f64)>,
}

/// A figure with a logarithmic scale of seconds, because what is to be compared differs by a thousand times. None where nothing is
/// to be seen.
pub fn draw(title: &str, axis: &str, lines: &[Line]) -> Result<Option<String>> {
    let points: Vec<(f64, f64)> = lines.iter().flat_map(|line| line.points.iter().copied()).collect();
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let least = points.iter().map(of).reduce(f64::min)?;
        let most = points.iter().map(of).reduce(f64::max)?;
        Some((least, most)).filter(|(least, _)| *least > 0.0)
    };
    let (Some((_, right)), Some((low, high))) = (ends(|point| point.0), ends(|point| point.1)) else {
        return Ok(None);
    };
    let mut svg = String::new();
    draw_into(&mut svg, title, axis, lines, right, (low, high)).map_err(|e| anyhow!("a figure: {e}"))?;
    Ok(Some(svg))
}

fn draw_into(
    svg: &mut String,
    title: &str,
    axis: &str,
    lines: &[Line],
    right: f64,
    (low, high): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    // The legend is beside the lines.
    let (area, legend) = area.split_horizontally(SIZE.0 - 250);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right * 1.02, (low / 1.3..high * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(axis)
        .y_desc("seconds")
        .y_label_formatter(&|seconds| format!("{seconds}"))
        .light_line_style(WHITE)
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        chart.draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?;
        chart.draw_series(line.points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
        let at = 40 + 20 * number as i32;
        legend.draw(&PathElement::new(vec![(0, at), (22, at)], color.stroke_width(2)))?;
        legend.draw(&Text::new(line.says.clone(), (28, at - 6), ("sans-serif", 13)))?;
    }
    chart.plotting_area().present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_a_line_for_each_way_and_its_name() {
        let line = |says: &str, seconds: f64| Line {
            says: says.to_owned(),
            points: vec![(10.0, seconds), (200.0, seconds * 20.0)],
        };
        let svg = draw("reading", "MB", &[line("HTTP", 0.1), line("one & only", 60.0)]).unwrap().unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("HTTP") && svg.contains("one &amp; only") && svg.contains("reading"), "{svg}");
        assert_eq!(svg.matches("<circle ").count(), 4);
    }

    #[test]
    fn nothing_is_drawn_of_nothing_or_of_what_has_no_place_on_the_scale() {
        assert_eq!(draw("x", "MB", &[]).unwrap(), None);
        let zero = Line { says: String::new(), points: vec![(10.0, 0.0)] };
        assert_eq!(draw("x", "MB", &[zero]).unwrap(), None);
    }
}
