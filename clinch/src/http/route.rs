//! The values in a path, by the template of its route.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Aligns a path with the template of its route, as axum 0.8 writes it: `{id}` is all up to the next slash, `{*rest}` all up
/// to the end, `{{` and `}}` are braces. `None` if they do not align.
///
/// Values are percent-decoded. `None` also for one that would not be UTF-8, which is no text to any handler either: as it was
/// sent it would be the same as another that spells it (`%ff`, `%25ff`).
pub(crate) fn path_params<'a>(template: &'a str, path: &'a str) -> Option<Vec<(&'a str, Cow<'a, str>)>> {
    // All of it is looked at, many bytes at a time.
    if !template.bytes().fold(false, |any, byte| any | matches!(byte, b'{' | b'}')) {
        return (template == path).then(Vec::new);
    }
    let (mut template, mut path) = (template, path);
    let mut params = Vec::new();
    while let Some(character) = template.chars().next() {
        let after = &template[character.len_utf8()..];
        match character {
            '{' | '}' if after.starts_with(character) => {
                template = &after[1..];
                path = path.strip_prefix(character)?;
            }
            '{' => {
                let (name, after) = after.split_once('}')?;
                // As the router does: nothing at the end is no value, but nothing between two slashes is one.
                if path.is_empty() {
                    return None;
                }
                let (name, end) = match name.strip_prefix('*') {
                    Some(name) => (name, path.len()),
                    None => (name, path.find('/').unwrap_or(path.len())),
                };
                let (value, rest) = path.split_at(end);
                params.push((name, decoded(value)?));
                (template, path) = (after, rest);
            }
            _ => {
                template = after;
                path = path.strip_prefix(character)?;
            }
        }
    }
    path.is_empty().then_some(params)
}

fn decoded(value: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(value).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_found_where_the_template_has_names() {
        for (template, path, params) in [
            ("/", "/", &[] as &[(&str, &str)]),
            ("/orders", "/orders", &[]),
            ("/orders/{id}", "/orders/42", &[("id", "42")]),
            ("/orders/{id}/", "/orders/42/", &[("id", "42")]),
            ("/orders/{id}/items/{*rest}", "/orders/42/items/a/b", &[("id", "42"), ("rest", "a/b")]),
            ("/{*rest}", "/a/", &[("rest", "a/")]),
            ("/{a}/{b}", "//x", &[("a", ""), ("b", "x")]),
            ("/user_{name}/x", "/user_ann/x", &[("name", "ann")]),
            ("/{{{id}", "/{42", &[("id", "42")]),
            ("/{{a}}/{id}", "/{a}/42", &[("id", "42")]),
            ("/größe/{id}", "/größe/42", &[("id", "42")]),
            ("/o/{id}", "/o/a%20b%2Fc%C3%A9%25", &[("id", "a b/cé%")]),
            ("/o/{id}", "/o/%", &[("id", "%")]),
            ("/o/{id}", "/o/a+b", &[("id", "a+b")]),
            ("/o/{*rest}", "/o/a%2Fb/c", &[("rest", "a/b/c")]),
        ] {
            let found = path_params(template, path).unwrap_or_else(|| panic!("{template} {path}"));
            let found: Vec<_> = found.iter().map(|(name, value)| (*name, &**value)).collect();
            assert_eq!(found, params, "{template} {path}");
        }
    }

    #[test]
    fn what_does_not_align_gives_nothing() {
        for (template, path) in [
            ("/orders", "/orders/"),
            ("/orders/", "/orders"),
            ("/orders/{id}", "/orders/"),
            ("/orders/{id}", "/orders"),
            ("/orders/{id}", "/orders/42/items"),
            ("/orders/{id}/items", "/orders/42"),
            ("/{*rest}", "/"),
            ("/orders", "/Orders"),
            ("/orders/{id", "/orders/42"),
            ("/{id}.json", "/42.json"), // axum 0.8 has no suffixes
            ("/o/{id}", "/o/%ff%20"),
            ("", "/"),
            ("/", ""),
        ] {
            assert_eq!(path_params(template, path), None, "{template} {path}");
        }
    }

    proptest! {
        #[test]
        fn no_template_and_no_path_panics(template in "[/{}*aé%]{0,12}", path in "[/{}*aé%0-9]{0,12}") {
            let _ = path_params(&template, &path);
        }
    }
}
