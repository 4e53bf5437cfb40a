use super::*;

fn chart<'a>(title: &'a str, unit: Unit, series: &'a [Series]) -> Chart<'a> {
    Chart {
        title,
        x_label: "epoch",
        y_label: "top-1",
        unit,
        series,
    }
}

fn svg(unit: Unit, series: &[Series]) -> String {
    chart("t", unit, series).svg().unwrap()
}

fn plain(series: &[Series]) -> String {
    svg(Unit::Plain, series)
}

/// The places of the texts of a picture: x, y, text.
fn texts(svg: &str) -> Vec<(f64, f64, String)> {
    let number = |tag: &str, key: &str| -> f64 {
        let rest = &tag[tag.find(&format!(" {key}=\"")).unwrap() + key.len() + 3..];
        rest[..rest.find('"').unwrap()].parse().unwrap()
    };
    let text = |part: &str| {
        let (tag, rest) = part.split_once('>').unwrap();
        let text = rest.split("</text>").next().unwrap().trim().to_owned();
        (number(tag, "x"), number(tag, "y"), text)
    };
    svg.split("<text").skip(1).map(text).collect()
}

#[test]
fn a_chart_names_everything_and_escapes_it() {
    let series = [
        Series::new("wave <d=192>", &[(0.0, 2.0), (1.0, 1.5), (2.0, 1.2)]),
        Series::new("from scratch & cold", &[(0.0, 2.3)]),
        Series::new("nothing", &[]),
    ];
    let chart = chart("Loss, by epoch", Unit::Plain, &series);
    let svg = chart.svg().unwrap();
    for text in ["Loss, by epoch", "epoch", "top-1", "nothing"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("wave &lt;d=192&gt;"));
    assert!(svg.contains("from scratch &amp; cold"));
    assert!(svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<circle").count(), 4);
    assert_eq!(svg, chart.svg().unwrap());
}

#[test]
fn fractions_are_percentages_over_two_points_at_least() {
    let series = [Series::new("a", &[(1.0, 0.899), (2.0, 0.901)])];
    let texts = texts(&svg(Unit::Percent, &series));
    let tick = |text: &str| text.strip_suffix(" %")?.parse::<f64>().ok();
    let mut ticks: Vec<f64> = texts.iter().filter_map(|text| tick(&text.2)).collect();
    ticks.sort_by(f64::total_cmp);
    assert!(ticks.len() >= 3, "{ticks:?}");
    let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
    let close = low >= 88.9 && high <= 91.1 && high - low >= 1.0;
    assert!(close, "{ticks:?}");
}

#[test]
fn names_stand_apart_at_the_ends_of_their_lines() {
    let line = |i: u32| {
        let points = [(0.0, 1.5), (1.0, 0.8 + 1e-2 * f64::from(i))];
        Series {
            strong: i < 3,
            ..Series::new(format!("method {i}"), &points)
        }
    };
    let series: Vec<Series> = (0..20).map(line).collect();
    let svg = svg(Unit::Percent, &series);
    let mut names: Vec<(f64, f64, String)> = texts(&svg);
    names.retain(|(_, _, text)| text.starts_with("method"));
    assert_eq!(names.len(), 20);
    names.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert!(names.windows(2).all(|w| w[1].1 - w[0].1 >= 15.0));
    assert!(names[0].1 > 0.0 && names[19].1 < f64::from(SIZE.1));
    // The highest line has the highest name, and all names stand right of the axes.
    assert_eq!(names[0].2, "method 19");
    assert!(names.iter().all(|(x, _, _)| *x > f64::from(SIZE.0)));
    // Three have colours; the others are grey.
    let hex = |RGBColor(r, g, b): RGBColor| format!("fill=\"#{r:02X}{g:02X}{b:02X}\"");
    let named = |colour: RGBColor| {
        let texts = svg.split("<text").skip(1).filter(|t| t.contains("method"));
        texts.filter(|t| t.contains(&hex(colour))).count()
    };
    let colours = [colour(0), colour(2), GREY];
    assert_eq!(colours.map(named), [1, 1, 17]);
}

#[test]
fn a_chart_is_legible_on_a_dark_page_too() {
    let series = [Series::new("a", &[(0.0, 1.0), (1.0, 2.0)])];
    let chart = chart("t", Unit::Plain, &series);
    for (svg, (width, height)) in [
        (chart.svg().unwrap(), (677, 420)),
        (chart.narrow().unwrap(), NARROW),
    ] {
        let (_, first) = svg.split_once("<rect").unwrap();
        let (first, _) = first.split_once('>').unwrap();
        let size = format!("width=\"{width}\" height=\"{height}\"");
        assert!(first.contains(&size), "{first}");
        assert!(first.contains("#FFFFFF"), "{first}");
    }
}

#[test]
fn points_that_are_not_finite_are_skipped() {
    let clean = [Series::new("a", &[(0.0, 1.0), (2.0, 3.0)])];
    let wrong = [(1.0, f64::NAN), (f64::INFINITY, 2.0), (1.5, -f64::MAX)];
    let noisy = [&[(0.0, 1.0)][..], &wrong, &[(2.0, 3.0)]].concat();
    assert_eq!(plain(&clean), plain(&[Series::new("a", &noisy)]));
}

#[test]
fn degenerate_ranges_are_drawn() {
    for points in [
        vec![],
        vec![(0.0, 0.0)],
        vec![(1e38, -1e38), (-1e38, 1e38)],
        vec![(1e16, 1.0), (1e16 + 2.0, 1.0 + f64::EPSILON)],
        vec![(1e-300, 1e-310), (2e-300, 2e-310)],
        vec![(0.0, 5e-324), (5e-324, 0.0)],
    ] {
        for unit in [Unit::Plain, Unit::Percent] {
            let svg = svg(unit, &[Series::new("a", &points)]);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}");
        }
    }
    plain(&[]);
}

#[test]
fn ticks_are_short() {
    for (value, range, text) in [
        (0.30000000000000004, 1.0, "0.3"),
        (-1e-17, 1.0, "0"),
        (120.0, 300.0, "120"),
        (0.0012, 0.004, "0.0012"),
        (2e-5, 1e-4, "2.0e-5"),
        (2.5e7, 1e8, "2.5e7"),
    ] {
        assert_eq!(tick(value, range), text);
    }
}

#[test]
fn a_spread_is_shaded_where_the_curve_has_a_colour() {
    let curve = |spread: f64, strong: bool| Series {
        name: "a".to_owned(),
        points: vec![(0.0, 0.5, spread), (1.0, 0.6, spread), (2.0, 0.7, 0.0)],
        strong,
    };
    let shaded = |spread, strong| plain(&[curve(spread, strong)]).matches("<polygon").count();
    assert_eq!((shaded(0.1, true), shaded(0.0, true)), (1, 0));
    assert_eq!(shaded(0.1, false), 0);
    assert!(!plain(&[curve(f64::NAN, true)]).contains("NaN"));
}
