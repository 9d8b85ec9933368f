//! The numbers and names of the vendors in China: Z.AI, MiniMax, DashScope, Volcengine Ark, Hunyuan, DeepSeek.
//!
//! Sources: Z.AI, "Errors" (<https://docs.z.ai/api-reference/api-code>, <https://docs.bigmodel.cn/cn/api/api-code>);
//! MiniMax, "Error codes" (<https://platform.minimax.io/docs/api-reference/errorcode>); Alibaba Model Studio, "Error
//! codes" (<https://help.aliyun.com/en/model-studio/error-code>); Ark, "公共错误码"
//! (<https://www.volcengine.com/docs/82379/1299023>); Tencent Hunyuan, "错误码"
//! (<https://cloud.tencent.com/document/api/1729/101838>); DeepSeek's API reference (`finish_reason`).

use super::rule::{Opinion, Rule, Seen, Test};
use crate::failure::{Anomaly, Reason};

pub(super) const COARSE: &[Rule] = &[ZAI, MINIMAX];

pub(super) const RULES: &[Rule] = &[FAMILY_NAMES, SYSTEM_RESOURCE];

/// Z.AI numbers its errors in a string, in the place of OpenAI's code or Anthropic's type.
const ZAI: Rule = Rule {
    id: "zai.code",
    why: "Z.AI's number for the error says what it is.",
    test: Test::Look(|seen| {
        let is_number = |word: &&str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
        Some(match seen.said.names().find(is_number)? {
            "1000" | "1001" | "1003" | "1004" if seen.status() == Some(401) => Opinion::forbid(Reason::Auth),
            "1110" | "1111" | "1112" | "1121" | "1220" | "1311" => Opinion::forbid(Reason::Permission),
            "1113" | "1304" | "1308" | "1309" | "1310" => Opinion::forbid(Reason::QuotaExhausted),
            "1120" | "1230" | "1234" => Opinion::retry(Reason::ServerError),
            "1211" => Opinion::forbid(Reason::ModelNotFound),
            "1261" => Opinion::forbid(Reason::ContextOverflow),
            "1301" => Opinion::forbid(Reason::ContentFilter),
            "1302" | "1303" => Opinion::retry(Reason::RateLimit),
            "1305" | "1312" => Opinion::retry(Reason::Overloaded),
            _ => return None,
        })
    }),
};

/// MiniMax gives a 200 and its own status in `base_resp`.
const MINIMAX: Rule = Rule {
    id: "minimax.base_resp",
    why: "MiniMax's number for the error says what it is.",
    test: Test::Look(|seen| {
        let number = seen.said.names().find_map(|name| name.strip_prefix("base_resp."))?;
        Some(match number {
            "1001" => Opinion::retry(Reason::Timeout),
            "1002" | "1039" | "1041" => Opinion::retry(Reason::RateLimit),
            "1004" | "2049" => Opinion::forbid(Reason::Auth),
            "1008" | "2056" => Opinion::forbid(Reason::QuotaExhausted),
            "1026" | "1027" => Opinion::forbid(Reason::ContentFilter),
            "1000" | "1013" | "1024" | "1033" => Opinion::retry(Reason::ServerError),
            "1042" | "1043" | "1044" | "2013" => Opinion::forbid(Reason::InvalidRequest),
            _ => return None,
        })
    }),
};

/// DashScope's and Ark's codes: names in several parts, the first of which says the kind.
const FAMILY_NAMES: Rule = Rule {
    id: "chinese.code",
    why: "The vendor's name for the error says what it is.",
    test: Test::Look(|seen| seen.said.names().find_map(|name| family_name(name, seen))),
};

fn family_name(name: &str, seen: &Seen<'_>) -> Option<Opinion> {
    const TABLE: &[(&str, Opinion)] = &[
        ("arrearage", Opinion::forbid(Reason::QuotaExhausted)),
        ("accountoverdue", Opinion::forbid(Reason::QuotaExhausted)),
        ("setlimitexceeded", Opinion::forbid(Reason::QuotaExhausted)),
        ("inferencelimitexceeded", Opinion::forbid(Reason::QuotaExhausted)),
        ("allocationquota.freetieronly", Opinion::forbid(Reason::QuotaExhausted)),
        ("commoditynotpurchased", Opinion::forbid(Reason::QuotaExhausted)),
        ("prepaidbilloverdue", Opinion::forbid(Reason::QuotaExhausted)),
        ("postpaidbilloverdue", Opinion::forbid(Reason::QuotaExhausted)),
        ("quotaexceeded", Opinion::forbid(Reason::QuotaExhausted)),
        ("throttling", Opinion::retry(Reason::RateLimit)),
        ("ratelimitexceeded", Opinion::retry(Reason::RateLimit)),
        ("modelaccountrpmratelimitexceeded", Opinion::retry(Reason::RateLimit)),
        ("modelaccounttpmratelimitexceeded", Opinion::retry(Reason::RateLimit)),
        ("accountratelimitexceeded", Opinion::retry(Reason::RateLimit)),
        ("requestbursttoofast", Opinion::retry(Reason::RateLimit)),
        ("serveroverloaded", Opinion::retry(Reason::Overloaded)),
        ("datainspectionfailed", Opinion::forbid(Reason::ContentFilter)),
        ("data_inspection_failed", Opinion::forbid(Reason::ContentFilter)),
        ("sensitivecontentdetected", Opinion::forbid(Reason::ContentFilter)),
        ("inputtextriskdetection", Opinion::forbid(Reason::ContentFilter)),
        ("inputimageriskdetection", Opinion::forbid(Reason::ContentFilter)),
        ("outputtextriskdetection", Opinion::forbid(Reason::ContentFilter)),
        ("inputtextsensitivecontentdetected", Opinion::forbid(Reason::ContentFilter)),
        ("inputimagesensitivecontentdetected", Opinion::forbid(Reason::ContentFilter)),
        ("outputtextsensitivecontentdetected", Opinion::forbid(Reason::ContentFilter)),
        ("contentsecuritydetectionerror", Opinion::forbid(Reason::ContentFilter)),
        ("authfailure", Opinion::forbid(Reason::Auth)),
        ("requestlimitexceeded", Opinion::retry(Reason::RateLimit)),
        ("invalidapikey", Opinion::forbid(Reason::Auth)),
        ("authenticationerror", Opinion::forbid(Reason::Auth)),
        ("invalidendpointormodel", Opinion::forbid(Reason::ModelNotFound)),
        ("invalidendpoint.notfound", Opinion::forbid(Reason::ModelNotFound)),
        ("modelnotfound", Opinion::forbid(Reason::ModelNotFound)),
        ("modelnotopen", Opinion::forbid(Reason::Permission)),
        ("accessdenied.unpurchased", Opinion::forbid(Reason::Permission)),
        ("model.accessdenied", Opinion::forbid(Reason::Permission)),
        ("invalidimageurl", Opinion::forbid(Reason::InvalidImage)),
    ];
    let name = name.to_ascii_lowercase();
    let (_, opinion) = TABLE.iter().find(|(known, _)| name.starts_with(known))?;
    // DashScope names a spent free quota like a throttle of the allocation.
    let is_free_quota = name.starts_with("throttling") && seen.said.prose.contains("free allocated quota");
    Some(if is_free_quota { Opinion::forbid(Reason::QuotaExhausted) } else { *opinion })
}

/// DeepSeek's word, in the place of a regular end, for a system that had no room to go on.
const SYSTEM_RESOURCE: Rule = Rule {
    id: "deepseek.system_resource",
    why: "The provider broke the answer off for want of resources.",
    test: Test::Look(|seen| {
        const WORD: &str = "insufficient_system_resource";
        let is_end = seen.said.finish.as_deref() == Some(WORD) || seen.failure.body.contains(WORD);
        let broke_off = seen.failure.anomaly == Some(Anomaly::BrokenOff);
        (is_end && broke_off).then_some(Opinion::retry(Reason::Overloaded))
    }),
};
