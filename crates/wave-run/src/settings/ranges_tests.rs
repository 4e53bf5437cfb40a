use super::*;

fn check(text: &str) -> Option<String> {
    let table: Table = text.parse().unwrap();
    check_table(&table).err().map(|error| error.to_string())
}

#[test]
fn help_tells_each_default() {
    use clap::{Args, Command};
    fn check<T: Args>(defaults: &[(&str, String)]) {
        let command = T::augment_args(Command::new("wave"));
        for (key, value) in defaults.iter().filter(|(_, value)| value != "[]") {
            let flag = command.get_arguments().find(|flag| flag.get_id() == key);
            let help = flag
                .and_then(|flag| flag.get_help())
                .expect(key)
                .to_string();
            let value = value.rsplit('(').next().unwrap_or_default();
            let value = value.trim_end_matches([')', '"']).trim_matches('"');
            let value = value.to_lowercase();
            let value = value.strip_suffix(".0").unwrap_or(&value);
            let default = format!("[default: {value}");
            assert!(help.contains(&default), "{key} = {value}: {help:?}");
        }
    }
    check::<Condense>(&Condense::defaults());
    check::<Expand>(&Expand::defaults());
    check::<Adapt>(&Adapt::defaults());
    check::<Init>(&Init::defaults());
    check::<Finetune>(&Finetune::defaults());
    check::<Eval>(&Eval::defaults());
    check::<Speed>(&Speed::defaults());
}

#[test]
fn a_number_outside_its_range_is_named_with_it() {
    for (key, range) in ranges() {
        let (least, most) = (range.start(), range.end());
        for wrong in ["nan".into(), "-inf".into(), format!("{:e}", most * 2.0)] {
            let said = check(&format!("{key} = {wrong}")).expect(key);
            let named = said.starts_with(&format!("{key} = "));
            assert!(named && said.contains(&format!("{least} to")), "{said}");
        }
        assert_eq!(check(&format!("{key} = {least:?}")), None);
        assert_eq!(check(&format!("{key} = {most:?}")), None);
    }
}

#[test]
fn arrays_tables_and_other_keys_are_looked_into() {
    let table = "[auxiliary]\nmlp_ratio = inf";
    for text in ["mean = [0.5, nan]", table, "qk = [inf, 1.0]"] {
        assert!(check(text).is_some(), "{text}");
    }
    assert_eq!(check("qk = [-5.0, 1.0]\ndata = \"shapes\""), None);
}
