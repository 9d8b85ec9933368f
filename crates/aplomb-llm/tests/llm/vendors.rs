//! The table of vendors against their documentation: each row names the page.

use std::collections::BTreeSet;

use aplomb_core::Error;
use aplomb_core::message::CallIds;
use aplomb_llm::model::Endpoint;
use aplomb_llm::vendors::{ALL, ApiStyle, Place, Wanted, find};
use aplomb_llm::wire::Wire;
use aplomb_llm::{Model, ModelConfig};
use secrecy::SecretString;

fn wanted(model: &str, change: impl FnOnce(&mut Wanted)) -> Wanted {
    let mut wanted = Wanted {
        model: model.to_owned(),
        api_key: Some(SecretString::from("key".to_owned())),
        ..Wanted::default()
    };
    change(&mut wanted);
    wanted
}

fn model(vendor: &str, name: &str, change: impl FnOnce(&mut Wanted)) -> Result<ModelConfig, Error> {
    find(vendor).unwrap().model(wanted(name, change))
}

fn base(config: &ModelConfig) -> &str {
    match &config.endpoint {
        Endpoint::Http { api_base, .. } => api_base,
        _ => "",
    }
}

#[test]
fn every_vendor_can_be_reached_and_says_where_that_is_documented() {
    let names: BTreeSet<_> = ALL.iter().map(|vendor| vendor.name).collect();
    assert_eq!(names.len(), ALL.len());
    for vendor in ALL {
        assert!(vendor.docs.starts_with("https://"), "{}", vendor.name);
        assert_eq!(find(vendor.name).unwrap().name, vendor.name);
        let elsewhere = !matches!(vendor.place, Place::At(_));
        let config = vendor
            .model(wanted("m", |wanted| {
                wanted.api_base = elsewhere.then(|| "http://host".to_owned());
            }))
            .unwrap();
        assert_eq!(config.provider, vendor.name);
        // A plain address, so that no certificates of this machine are asked for.
        let mut local = config;
        if let Endpoint::Http { api_base, .. } = &mut local.endpoint {
            *api_base = api_base.replace("https:", "http:");
        }
        assert!(Model::new(local).is_ok(), "{}", vendor.name);
    }
    assert!(find("nobody").is_none());
}

#[test]
fn a_vendor_says_which_ids_of_calls_it_takes_back() {
    for (vendor, expected) in [
        ("openai", CallIds::AtMost(40)),
        ("anthropic", CallIds::Words),
        ("mistral", CallIds::NineAlphanumerics),
    ] {
        assert_eq!(model(vendor, "m", |_| {}).unwrap().call_ids, expected, "{vendor}");
    }
}

#[test]
fn a_user_may_say_where_a_vendor_is_and_must_where_it_is_not_known() {
    assert_eq!(base(&model("groq", "m", |_| {}).unwrap()), "https://api.groq.com/openai/v1");
    let proxied = model("groq", "m", |wanted| wanted.api_base = Some("http://proxy/v1/".to_owned())).unwrap();
    assert_eq!(base(&proxied), "http://proxy/v1");
    for vendor in ["openai_compatible", "azure"] {
        let error = model(vendor, "m", |_| {}).unwrap_err();
        assert_eq!(error.code().as_str(), "config.validation");
        assert_eq!(error.context("path"), Some(&"llm.api_base".into()), "{error}");
    }
}

#[test]
fn azure_is_reached_by_version_and_deployment_or_without() {
    // "Azure OpenAI API version lifecycle"; "REST API reference".
    let resource = "https://mine.openai.azure.com";
    let azure = |version: Option<&str>, style, base: &str| {
        let config = model("azure", "my-gpt", |wanted| {
            wanted.api_base = Some(base.to_owned());
            wanted.api_version = version.map(str::to_owned);
            wanted.style = style;
        });
        let config = config.unwrap();
        assert_eq!(config.quirks.key_header, Some(("api-key", "")));
        (self::base(&config).to_owned(), config.query)
    };
    let version = vec![("api-version".to_owned(), "2024-10-21".to_owned())];
    let (chat, responses) = (Some(ApiStyle::ChatCompletions), Some(ApiStyle::Responses));
    assert_eq!(azure(None, chat, resource), (format!("{resource}/openai/v1"), vec![]));
    assert_eq!(azure(None, responses, resource), (format!("{resource}/openai/v1"), vec![]));
    assert_eq!(
        azure(Some("2024-10-21"), None, resource),
        (format!("{resource}/openai/deployments/my-gpt"), version.clone())
    );
    assert_eq!(
        azure(Some("2024-10-21"), responses, resource),
        (format!("{resource}/openai"), version.clone())
    );
    let further = format!("{resource}/openai/deployments/other");
    assert_eq!(azure(Some("2024-10-21"), None, &further), (further.clone(), version));
    let error = model("openai", "m", |wanted| wanted.api_version = Some("1".to_owned())).unwrap_err();
    assert_eq!(error.context("path"), Some(&"llm.api_version".into()), "{error}");
}

#[test]
fn the_style_chooses_between_openais_protocols_where_both_are_spoken() {
    let style = |vendor: &str, style| model(vendor, "m", |wanted| wanted.style = Some(style));
    assert_eq!(style("openai", ApiStyle::Responses).unwrap().wire, Wire::OpenaiResponses);
    assert_eq!(style("openai", ApiStyle::ChatCompletions).unwrap().wire, Wire::OpenaiChat);
    for (vendor, refused) in [
        ("mistral", ApiStyle::Responses),
        ("anthropic", ApiStyle::Responses),
        ("gemini", ApiStyle::ChatCompletions),
    ] {
        let error = style(vendor, refused).unwrap_err();
        assert!(error.to_string().contains("llm.openai_api_style"), "{error}");
    }
}

#[test]
fn a_model_reasons_if_its_name_or_the_user_says_so() {
    for (vendor, name, reasons) in [
        ("openai", "gpt-4o", false),
        ("openai", "gpt-5-mini", true),
        ("openai", "gpt-5-chat-latest", false),
        ("openai", "o3", true),
        ("openai", "o4-mini", true),
        ("deepseek", "deepseek-reasoner", true),
        ("deepseek", "deepseek-chat", false),
        ("openai_compatible", "gpt-5", false),
    ] {
        let at = |wanted: &mut Wanted| wanted.api_base = Some("http://host".to_owned());
        assert_eq!(model(vendor, name, at).unwrap().reasons, reasons, "{vendor} {name}");
    }
    assert!(model("openai", "gpt-4o", |wanted| wanted.reasons = Some(true)).unwrap().reasons);
    assert!(!model("openai", "gpt-5", |wanted| wanted.reasons = Some(false)).unwrap().reasons);
}
