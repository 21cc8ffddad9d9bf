//! The page: files as they are, inside the program.

use axum::extract::Path;
use axum::response::{Html, IntoResponse, Response};
use http::{StatusCode, header};

use crate::serve::problem::Problem;

const PAGE: &str = include_str!("../page/index.html");

const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// What the page consists of besides itself.
const FILES: [(&str, &str, &str); 12] = [
    ("base.css", CSS, include_str!("../page/base.css")),
    ("console.css", CSS, include_str!("../page/console.css")),
    ("playground.css", CSS, include_str!("../page/playground.css")),
    ("console.js", JS, include_str!("../page/console.js")),
    ("stream.js", JS, include_str!("../page/stream.js")),
    ("holders.js", JS, include_str!("../page/holders.js")),
    ("release.js", JS, include_str!("../page/release.js")),
    ("charts.js", JS, include_str!("../page/charts.js")),
    ("playground.js", JS, include_str!("../page/playground.js")),
    ("theme.js", JS, include_str!("../page/theme.js")),
    ("dom.js", JS, include_str!("../page/dom.js")),
    ("icon.svg", SVG, include_str!("../page/icon.svg")),
];

pub(super) async fn page() -> Html<&'static str> {
    Html(PAGE)
}

pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, content_type, text)) => ([(header::CONTENT_TYPE, *content_type)], *text).into_response(),
        None => {
            Problem::new(StatusCode::NOT_FOUND, "not-found", "the console has no such file").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content security policy allows neither, and nothing is fetched from elsewhere.
    #[test]
    fn nothing_is_inline_and_nothing_comes_from_outside() {
        for (name, text) in FILES.iter().map(|(name, _, text)| (*name, *text)).chain([("index.html", PAGE)]) {
            for forbidden in [
                "style=",
                "onclick=",
                "javascript:",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
            ] {
                assert!(!text.contains(forbidden), "{name}: {forbidden}");
            }
            for address in text
                .match_indices("://")
                .map(|(at, _)| &text[at.saturating_sub(6)..(at + 20).min(text.len())])
            {
                assert!(address.contains("http://www.w3.org") || address.contains("${"), "{name}: {address}");
            }
        }
        let scripts = PAGE.matches("<script").count();
        assert_eq!(scripts, PAGE.matches(" src=\"/console/").count() - PAGE.matches("<img src").count());
        assert!(!PAGE.contains("<style"));
    }
}
