use serde_json::{Value, json};

use super::{LONGEST_SOURCE, Template, TemplateError};

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = [json!({"role": "user", "content": "hi"})];
    Template::parse(source, "<s>", "</s>")?.render(&messages, true, Some("2024-02-09T08:05:03"))
}

#[test]
fn line_ends_are_newlines_and_the_last_one_is_dropped() {
    assert_eq!(render("a\r\n{% if true %}\r\nb\rc\r\n{% endif %}\r\nd\r\n"), Ok("a\nb\nc\nd".to_owned()));
    assert_eq!(render("a\n\n"), Ok("a\n".to_owned()));
}

#[test]
fn a_refusal_is_told_from_a_failure_and_a_fault_of_syntax() {
    let refused = |why: &str| Err(TemplateError::Refused(why.to_owned()));
    assert_eq!(render("{{ raise_exception('never') }}"), refused("never"));
    assert_eq!(render("{% macro m() %}{{ raise_exception('in ' ~ 1) }}{% endmacro %}{{ m() }}"), refused("in 1"));
    assert!(matches!(render("{{ messages.x.y }}"), Err(TemplateError::Failed(_))));
    for source in ["{% for %}", "{% generation %}", "{% endgeneration %}", "{{", "{% no_such_tag %}"] {
        assert!(matches!(render(source), Err(TemplateError::Syntax(_))), "{source}");
    }
}

#[test]
fn a_template_cannot_see_what_is_not_meant_for_it() {
    assert_eq!(render("{{ now }}{{ tools }}{{ documents }}"), Ok(String::new()));
    assert_eq!(render("{% set now = 1 %}{{ strftime_now('%H') }}"), Ok("08".to_owned()));
}

#[test]
fn a_template_that_asks_for_too_much_is_called_off() {
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 1000000 }}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set x = 'a' * 50000000 %}{% for i in range(99999) %}{{ x.count('a') }}{% endfor %}",
        "{{ ('a' * 1000000).replace('a', 'b' * 10000) }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns | tojson }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '{:99999999999999999999}'.format(1) }}",
        "{{ [1] | tojson(indent=99999999999) }}",
        "{{ strftime_now('%') }}",
    ] {
        assert!(matches!(render(source), Err(TemplateError::Failed(_))), "{source}");
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let fits = |unit: &str| unit.repeat((LONGEST_SOURCE - 100) / unit.len());
    for source in [
        format!("{{{{ {}1 }}}}", fits("-")),
        format!("{{{{ {}1 }}}}", fits("not ")),
        format!("{{{{ 1{} }}}}", fits("+1")),
        format!("{{{{ 2{} }}}}", fits("**1")),
        format!("{{{{ 1{} }}}}", fits("|int")),
        format!("{{{{ messages{} }}}}", fits(".b")),
        format!("{{{{ {} }}}}", fits("(")),
        format!("{{{{ 1{} }}}}", fits(" if 1 else 2")),
        fits("{% if 1 %}"),
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}\
         {{ ns.x == [ns.x] }}{{ [ns.x, [ns.x]] | sort | length }}"
            .to_owned(),
    ] {
        // What it says does not matter; that it comes back does.
        let _ = render(&source);
    }
    assert!(matches!(render(&fits("{# #} ").repeat(2)), Err(TemplateError::Syntax(_))));
}

#[test]
fn a_long_chat_has_the_work_that_it_takes() {
    let source = "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% if m.content is string %}\
                  {% set text = m.content.split('</think>')[-1] | trim %}<|{{ m.role }}|>{{ text }}<|end|>{% endif %}{% endfor %}";
    let messages: Vec<Value> =
        (0..10_000).map(|i| json!({"role": "user", "content": format!("{i} ").repeat(50)})).collect();
    let text = Template::parse(source, "", "").unwrap().render(&messages, true, None).unwrap();
    assert_eq!(text.matches("<|end|>").count(), 10_000);
}
