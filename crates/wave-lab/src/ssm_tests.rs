use super::*;
use crate::testing::values;

#[test]
fn the_layers_that_are_not_mimetic_begin_by_default() {
    let settings = Settings {
        mimetic_layers: Some(vec![1]),
        ..Settings::default()
    };
    let shape = SequenceShape::new(9, 3, 32, Mixer::Mamba2);
    let found = start(&settings, &shape, 5).unwrap();
    let all = start::start(Method::Mimetic, &shape, None, None, 5).unwrap();
    let none = start::start(Method::Default, &shape, None, None, 5).unwrap();
    assert_eq!(found.len(), all.len());
    for (name, weights) in &found {
        let wanted = match name.starts_with("backbone.layers.1.") {
            true => &all[name],
            false => &none[name],
        };
        assert_eq!(values(weights), values(wanted), "{name}");
    }
    let rates = "backbone.layers.1.mixer.A_log";
    assert_ne!(values(&found[rates]), values(&none[rates]));
}
