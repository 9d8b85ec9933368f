//! How large a schema is, as vendors count, and where its references lead. Knows the keywords of a [`Subset`] alone.
//!
//! [`Subset`]: super::subset::Subset

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The schemas in one, definitions aside.
fn below(part: &Value) -> impl Iterator<Item = &Value> {
    let named = part.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let lists = ["anyOf", "prefixItems"].into_iter().filter_map(|key| part.get(key)?.as_array());
    let single = ["items", "additionalProperties"].into_iter().filter_map(|key| part.get(key));
    named.chain(lists.flatten()).chain(single)
}

/// What vendors count.
#[derive(Default)]
pub(super) struct Count {
    pub(super) properties: usize,
    /// Those that may be missing.
    pub(super) optional: usize,
    /// Of all `enum`s.
    pub(super) values: usize,
    /// Schemas that name several types, or have options.
    pub(super) unions: usize,
}

impl Count {
    /// Adds what is in a schema, its definitions once each.
    pub(super) fn add(&mut self, part: &Value) {
        let length = |key: &str| part.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        let properties = part.get("properties").and_then(Value::as_object).map_or(0, Map::len);
        self.properties += properties;
        self.optional += properties.saturating_sub(length("required"));
        self.values += length("enum");
        self.unions += usize::from(length("type") > 1 || length("anyOf") > 0);
        below(part).for_each(|below| self.add(below));
        let defined = ["$defs", "definitions"].into_iter().filter_map(|key| part.get(key)?.as_object());
        defined.flat_map(Map::values).for_each(|defined| self.add(defined));
    }
}

/// The references of a schema, as they are followed.
pub(super) struct References<'a> {
    root: &'a Value,
    on_the_way: BTreeSet<&'a str>,
    followed: BTreeSet<&'a str>,
}

impl<'a> References<'a> {
    /// Whether following them may lead back to where one began; `None` if one leads to no definition.
    pub(super) fn in_circle(root: &'a Value) -> Option<bool> {
        let mut references = References { root, on_the_way: BTreeSet::new(), followed: BTreeSet::new() };
        references.lead_back(root)
    }

    fn lead_back(&mut self, part: &'a Value) -> Option<bool> {
        let Some(place) = part.get("$ref") else {
            let mut back = false;
            for below in below(part) {
                back |= self.lead_back(below)?;
            }
            return Some(back);
        };
        let place = place.as_str()?;
        if self.on_the_way.contains(place) {
            return Some(true);
        }
        // Once is enough: a circle would have been met.
        if !self.followed.insert(place) {
            return Some(false);
        }
        let pointer = place.strip_prefix('#').filter(|pointer| {
            ["/$defs/", "/definitions/"].iter().any(|definitions| pointer.starts_with(definitions))
        })?;
        let target = self.root.pointer(pointer)?;
        self.on_the_way.insert(place);
        let back = self.lead_back(target)?;
        self.on_the_way.remove(place);
        Some(back)
    }
}
