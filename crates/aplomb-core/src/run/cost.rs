//! What models cost. Whole numbers inside, so that a sum of many small amounts is exact.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::TokenUsage;

/// Picodollars in a dollar.
const PICO: u64 = 1_000_000_000_000;

/// An amount of US dollars, exact to a picodollar (10⁻¹² USD). In JSON it is a number of dollars, which is exact up to
/// 1,000 USD.
///
/// ```
/// use aplomb_core::run::Usd;
/// let thrice = Usd::new(0.1) + Usd::new(0.1) + Usd::new(0.1);
/// assert_eq!(thrice, Usd::new(0.3));
/// assert_eq!((thrice.to_string(), thrice.as_f64()), ("$0.30".to_owned(), 0.3));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(u64);

impl Usd {
    /// Nothing.
    pub const ZERO: Usd = Usd(0);

    /// That many dollars, rounded to a picodollar. What is negative or no number is nothing; what is more than fits (some
    /// 18 million dollars) is as much as fits.
    pub fn new(dollars: f64) -> Usd {
        Usd((dollars * PICO as f64).round() as u64)
    }

    /// The amount in dollars.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / PICO as f64
    }
}

impl Add for Usd {
    type Output = Usd;

    fn add(self, more: Usd) -> Usd {
        Usd(self.0.saturating_add(more.0))
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Usd>>(amounts: I) -> Usd {
        amounts.fold(Usd::ZERO, Usd::add)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:012}", self.0 % PICO);
        let digits = fraction.trim_end_matches('0');
        // Cents are always there.
        write!(f, "${}.{digits:0<2}", self.0 / PICO)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Usd, D::Error> {
        f64::deserialize(deserializer).map(Usd::new)
    }
}

/// What a model costs, in picodollars a token. A price in USD per million tokens is exact to six digits after the point.
///
/// Of a request's tokens, those that were read from the provider's cache or written to it have prices of their own, and the
/// rest has that of input; [`TokenUsage::input`] is all of them. Thoughts are output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pricing {
    input: u64,
    output: u64,
    cached_read: u64,
    cached_write: u64,
}

impl Pricing {
    /// Prices in USD per million tokens. What is read from the cache or written to it costs as much as other input, unless
    /// told.
    pub fn per_million(input: f64, output: f64) -> Pricing {
        let (input, output) = (per_token(input), per_token(output));
        Pricing { input, output, cached_read: input, cached_write: input }
    }

    /// The same, with another price for what is read from the cache.
    #[must_use]
    pub fn cached_read(self, per_million: f64) -> Pricing {
        Pricing { cached_read: per_token(per_million), ..self }
    }

    /// The same, with another price for what is written to the cache.
    #[must_use]
    pub fn cached_write(self, per_million: f64) -> Pricing {
        Pricing { cached_write: per_token(per_million), ..self }
    }

    /// What these tokens cost.
    pub fn cost(&self, tokens: TokenUsage) -> Usd {
        let read = tokens.input_cached.min(tokens.input);
        let written = tokens.input_cache_creation.min(tokens.input - read);
        let plain = tokens.input - read - written;
        let parts = [
            (plain, self.input),
            (read, self.cached_read),
            (written, self.cached_write),
            (tokens.output, self.output),
        ];
        // A count that no provider means must not become a small amount.
        parts.into_iter().map(|(tokens, price)| Usd(tokens.saturating_mul(price))).sum()
    }
}

/// Picodollars a token: a millionth of a dollar for a million of them.
fn per_token(per_million: f64) -> u64 {
    (per_million * 1e6).round() as u64
}

/// A model of the agent's, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PricedModel {
    /// The model, as `provider/model`.
    pub model: String,
    /// What it costs, where that is known.
    pub pricing: Option<Pricing>,
}

/// What a run used of one model, failed attempts included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelCost {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Of the tokens sent, those read from the provider's cache.
    pub input_tokens_cached: u64,
    /// Of the tokens sent, those written to the provider's cache.
    pub input_tokens_cache_creation: u64,
    /// What they cost; none where the model's price is not known.
    pub cost_usd: Option<Usd>,
}

impl ModelCost {
    pub(super) fn add(&mut self, tokens: TokenUsage, pricing: Option<&Pricing>) {
        self.input_tokens = self.input_tokens.saturating_add(tokens.input);
        self.output_tokens = self.output_tokens.saturating_add(tokens.output);
        self.input_tokens_cached = self.input_tokens_cached.saturating_add(tokens.input_cached);
        self.input_tokens_cache_creation =
            self.input_tokens_cache_creation.saturating_add(tokens.input_cache_creation);
        self.cost_usd = self.cost_usd.zip(pricing).map(|(cost, pricing)| cost + pricing.cost(tokens));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input: u64, output: u64, read: u64, written: u64) -> TokenUsage {
        TokenUsage {
            input,
            output,
            input_cached: read,
            input_cache_creation: written,
            ..TokenUsage::default()
        }
    }

    #[test]
    fn each_token_is_paid_for_once_at_its_own_price() {
        let pricing = Pricing::per_million(3.0, 15.0).cached_read(0.3).cached_write(3.75);
        // 700 × 3 + 200 × 0.3 + 100 × 3.75 + 50 × 15 = 2100 + 60 + 375 + 750 millionths.
        assert_eq!(pricing.cost(tokens(1_000, 50, 200, 100)), Usd::new(0.003_285));
        // Without prices of their own, 1000 × 3 + 50 × 15.
        assert_eq!(Pricing::per_million(3.0, 15.0).cost(tokens(1_000, 50, 200, 100)), Usd::new(0.003_75));
        // More in the cache than there is at all: no token is paid for twice.
        assert_eq!(pricing.cost(tokens(100, 0, 80, 80)), Usd::new(0.000_099));
    }

    #[test]
    fn a_million_small_amounts_are_exactly_their_sum() {
        let one = Pricing::per_million(0.075, 0.3).cost(tokens(1, 1, 0, 0));
        let many: Usd = std::iter::repeat_n(one, 1_000_000).sum();
        assert_eq!((many, many.to_string()), (Usd::new(0.375), "$0.375".to_owned()));
    }

    #[test]
    fn what_is_too_much_to_count_stays_the_most_that_can_be_counted() {
        let most = Pricing::per_million(1e6, 1e6).cost(tokens(u64::MAX, u64::MAX, 0, 0));
        assert_eq!(most, Usd(u64::MAX));
        assert_eq!(most + most, most);
        assert_eq!([Usd::new(-1.0), Usd::new(f64::NAN)], [Usd::ZERO, Usd::ZERO]);
    }

    #[test]
    fn an_amount_is_shown_with_cents_and_as_many_digits_as_it_has() {
        let shown = [0.0, 1.5, 12.0, 0.0105, 0.000_000_000_001].map(|dollars| Usd::new(dollars).to_string());
        assert_eq!(shown, ["$0.00", "$1.50", "$12.00", "$0.0105", "$0.000000000001"]);
    }

    #[test]
    fn an_amount_goes_to_json_and_back_without_loss() {
        for pico in [0, 1, 10_500_000_000, 333_333_333_333, 999_999_999_999_999] {
            let json = serde_json::to_string(&Usd(pico)).unwrap();
            assert_eq!(serde_json::from_str::<Usd>(&json).unwrap(), Usd(pico), "{json}");
        }
    }
}
