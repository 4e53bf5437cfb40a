use super::*;
use crate::testing::check_refused;

fn from(vars: &[(&str, &str)]) -> Result<HubSettings, HubError> {
    HubSettings::from_vars(|name| {
        let found = vars.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_variables_mean_what_they_mean_to_python() {
    let settings = from(&[("HOME", "/h")]).unwrap();
    assert_eq!(settings.endpoint, "https://huggingface.co");
    assert_eq!(settings.cache, Path::new("/h/.cache/huggingface/hub"));
    assert_eq!((settings.offline, settings.token), (false, None));
    for (vars, cache) in [
        (&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/f")][..], "/c"),
        (&[("HF_HOME", "/f"), ("XDG_CACHE_HOME", "/x")], "/f/hub"),
        (&[("HF_HOME", "~/f"), ("HOME", "/h")], "/h/f/hub"),
        (&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
    ] {
        assert_eq!(from(vars).unwrap().cache, Path::new(cache));
    }
    for (value, offline) in [("1", true), ("ON", true), ("0", false), ("", false)] {
        let vars = [("HOME", "/h"), ("HF_HUB_OFFLINE", value)];
        assert_eq!(from(&vars).unwrap().offline, offline);
    }
}

#[test]
fn the_token_is_found_and_never_shown() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("token");
    std::fs::write(&file, "hf_from_file\n").unwrap();
    let home = root.path().to_str().unwrap();
    let settings = from(&[("HF_HOME", home)]).unwrap();
    assert_eq!(settings.token, Some(Token::new("hf_from_file").unwrap()));
    let settings = from(&[("HF_HOME", home), ("HF_TOKEN", " hf_secret ")]).unwrap();
    assert_eq!(settings.token, Some(Token::new("hf_secret").unwrap()));
    assert!(!format!("{settings:?}").contains("hf_secret"));
    assert_eq!(settings.scrub("Bearer hf_secret!"), "Bearer [token]!");
}

#[test]
fn nonsense_is_refused_without_repeating_it() {
    let secret = "hf_sec ret";
    let error = from(&[("HOME", "/h"), ("HF_TOKEN", secret)]).unwrap_err();
    assert!(!error.to_string().contains("ret;"));
    check_refused::<()>(Err(error), &["HF_TOKEN", "not a token"]);
    for endpoint in ["h.co", "ftp://h", "https://", "https://u:hf_secret@h"] {
        let error = from(&[("HOME", "/h"), ("HF_ENDPOINT", endpoint)]).unwrap_err();
        assert!(!error.to_string().contains("hf_secret"));
        check_refused::<()>(Err(error), &["HF_ENDPOINT", "https://HOST"]);
    }
    check_refused(from(&[]), &["HF_HUB_CACHE"]);
}
