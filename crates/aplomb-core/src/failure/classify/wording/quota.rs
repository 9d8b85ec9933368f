//! Wording of money, caps and allowances: what waiting a moment does not refill.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Test};

pub(in super::super) const RULES: &[Rule] = &[MONEY, ALLOWANCE];

/// Sources: OpenAI ("You exceeded your current quota, please check your plan and billing details"), Anthropic ("Your
/// credit balance is too low", "You're out of extra usage"), DeepSeek ("Insufficient Balance"), OpenRouter ("requires more
/// credits", "can only afford", "Insufficient credits"), xAI ("doesn't have any credits yet", "monthly spending limit"),
/// LiteLLM ("Budget has been exceeded!"), Hugging Face ("monthly included credits"), Moonshot ("is suspended due to
/// insufficient balance"), Z.AI (余额不足), new-api (额度不足).
const MONEY: Rule = Rule {
    id: "wording.money",
    why: "The message says that money or credits are used up.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text(),
        any: &[
            &["exceeded your current quota"],
            &["exceeded current quota"],
            &["insufficient balance"],
            &["insufficient account balance"],
            &["insufficient credit"],
            &["insufficient funds"],
            &["insufficient quota"],
            &["insufficient_quota"],
            &["not enough credits"],
            &["credit balance"],
            &["out of credits"],
            &["no credits"],
            &["any credits yet"],
            &["used all available credits"],
            &["requires available credits"],
            &["requires more credits"],
            &["usage credits are required"],
            &["credits are depleted"],
            &["credits have been exhausted"],
            &["credits exhausted"],
            &["can only afford"],
            &["included credits"],
            &["out of extra usage"],
            &["extra usage is required"],
            &["spending limit"],
            &["spending cap"],
            &["spend limit"],
            &["billing hard limit"],
            &["billing limit"],
            &["with your billing"],
            &["payment required"],
            &["payment method", "required"],
            &["overdue balance"],
            &["overdue payment"],
            &["account is in arrears"],
            &["budget has been exceeded"],
            &["\nbudget exceeded"],
            &["exceeded budget"],
            &["over budget"],
            &["exceeded your monthly", "credits"],
            &["monthly budget"],
            &["please recharge"],
            &["recharge your account"],
            &["余额不足"],
            &["欠费"],
            &["额度不足"],
            &["额度已用尽"],
            &["额度失败"],
            &["请充值"],
        ],
        then: Opinion::forbid(Reason::QuotaExhausted),
    },
};

/// Sources: Ollama ("reached your weekly usage limit"), Codex ("The usage limit has been reached", "not included in your
/// plan"), MiniMax ("5-hour usage limit reached"), Mistral ("monthly usage limit"), Anthropic ("specified API usage
/// limits", "7-day rate limit"), Z.AI ("Weekly/Monthly Limit Exhausted"), OpenRouter ("free-models-per-day", "a higher
/// monthly limit"), Ark ("reached the set inference limit"), xAI ("used all the included free usage"), Cohere ("calls /
/// month"), DashScope ("The free tier of the model has been exhausted").
const ALLOWANCE: Rule = Rule {
    id: "wording.allowance",
    why: "The message names a plan's allowance that is used up.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text(),
        any: &[
            &["usage limit has been reached"],
            &["usage limit reached"],
            &["usage limit exceeded"],
            &["reached your", "usage limit"],
            &["hit your", "usage limit"],
            &["specified api usage limits"],
            &["weekly usage limit"],
            &["monthly usage limit"],
            &["session usage limit"],
            &["weekly limit"],
            &["monthly limit"],
            &["monthly quota"],
            &["weekly quota"],
            &["daily quota"],
            &["monthly allowance"],
            &["weekly/monthly limit"],
            &["5-hour limit reached"],
            &["7-day rate limit"],
            &["5-hour rate limit"],
            &["-per-day"],
            &["api calls / month"],
            &["free usage for now"],
            &["free quota used"],
            &["free quota exceeded"],
            &["free allocated quota"],
            &["free tier", "has been exhausted"],
            &["free trial", "expired"],
            &["not included in your plan"],
            &["set inference limit"],
            &["使用上限"],
            &["无可用资源包"],
            &["套餐已到期"],
        ],
        then: Opinion::forbid(Reason::QuotaExhausted),
    },
};
