//! errors.md §1: the code table.

use aplomb_core::error::{Code, Error, codes};

use crate::page::*;

#[test]
fn the_contract_has_32_base_codes_and_five_of_aplombs_own() {
    let [base, own] = code_tables();
    assert_eq!((base.len(), own.len()), (32, 5));
    assert_eq!(code_rows().len(), 37, "a code stands twice");
}

#[test]
fn every_code_of_the_contract_is_in_the_code_and_nothing_more_on_either_side() {
    let contract = set(code_rows().into_keys());
    let ours: Vec<&str> = codes::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(set(ours.iter().copied()), contract);
    assert_eq!(ours.len(), contract.len(), "a code stands twice");
}

#[test]
fn every_row_of_the_code_table_is_the_contracts_row() {
    let rows = code_rows();
    let mut wrong = vec![];
    for (name, row) in &rows {
        let Some(code) = Code::find(name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let inherited = row.parent.as_deref().map_or(0, |parent| all_fields(&rows, parent).len());
        let ours = CodeRow {
            type_name: code.type_name().to_owned(),
            parent: code.parent().map(|parent| parent.as_str().to_owned()),
            retryable: code.retryable(),
            stop_reason: code.stop_reason().as_str().to_owned(),
            own_fields: code.fields().into_iter().skip(inherited).map(str::to_owned).collect(),
        };
        if &ours != row {
            wrong.push(format!("{name}\n  contract {row:?}\n  code     {ours:?}"));
        }
        if code.fields() != all_fields(&rows, name) {
            wrong.push(format!("{name}: fields {:?}, contract {:?}", code.fields(), all_fields(&rows, name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_code_is_found_by_its_name_and_shows_it() {
    for code in codes::ALL {
        assert_eq!(Code::find(code.as_str()), Some(*code));
        assert_eq!(code.to_string(), code.as_str());
    }
    assert_eq!(Code::find("tool.quantum"), None);
    assert_eq!(Code::find(""), None);
}

#[test]
fn every_code_is_lower_case_words_joined_by_at_least_one_dot() {
    // ^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$
    for code in codes::ALL {
        let words: Vec<&str> = code.as_str().split('.').collect();
        assert!(words.len() >= 2, "{code}");
        for word in words {
            assert!(word.starts_with(|c: char| c.is_ascii_lowercase()), "{code}");
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(word.chars().all(allowed), "{code}");
        }
    }
}

#[test]
fn parents_stand_before_their_children() {
    for (index, code) in codes::ALL.iter().enumerate() {
        if let Some(parent) = code.parent() {
            assert!(codes::ALL[..index].contains(&parent), "{code}");
        }
    }
}

#[test]
fn a_code_is_a_kind_of_exactly_the_codes_on_the_contracts_way_to_the_base() {
    let rows = code_rows();
    for code in codes::ALL {
        let line = lineage(&rows, code.as_str());
        for other in codes::ALL {
            assert_eq!(code.is_a(*other), line.contains(&other.as_str().to_owned()), "{code} is a {other}");
        }
    }
}

#[test]
fn is_a_is_reflexive_transitive_and_antisymmetric() {
    for a in codes::ALL {
        assert!(a.is_a(*a), "{a}");
        assert!(a.is_a(codes::OPENAGENTS_ERROR), "{a}");
        for b in codes::ALL {
            assert!(a == b || !(a.is_a(*b) && b.is_a(*a)), "{a} {b}");
            for c in codes::ALL {
                assert!(!(a.is_a(*b) && b.is_a(*c)) || a.is_a(*c), "{a} {b} {c}");
            }
        }
    }
}

#[test]
fn a_caller_that_handles_a_parent_handles_all_below_it() {
    let error = Error::new(codes::TOOL_TIMEOUT, "too slow");
    assert!(
        error.is_a(codes::TOOL_TIMEOUT) && error.is_a(codes::TOOL_RETRYABLE) && error.is_a(codes::TOOL_ERROR)
    );
    assert!(!error.is_a(codes::TOOL_PERMANENT) && !error.is_a(codes::LLM_ERROR));
}

#[test]
fn what_to_do_about_an_error_is_said_only_of_codes_that_exist() {
    let tables = tables(&section(&read(ERRORS), 3));
    for row in &tables[0][1..] {
        for code in quoted(&row[0]) {
            assert!(Code::find(&code).is_some(), "errors.md §3 knows {code}");
        }
    }
}
