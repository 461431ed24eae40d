use proptest::prelude::*;

use super::*;

/// A model of a few tokens, whose log-probabilities are a function of what stands before. Token 0 ends.
#[derive(Clone, Debug)]
struct Model {
    tokens: usize,
    seed: u64,
}

impl Model {
    fn logs(&self, before: &[Token]) -> Vec<f64> {
        let mut hash = self.seed ^ 0x9E37_79B9_7F4A_7C15;
        for token in before {
            hash = (hash ^ (*token as u64 + 1)).wrapping_mul(0x0100_0000_01B3).rotate_left(17);
        }
        let raw: Vec<f64> = (0..self.tokens)
            .map(|t| {
                let h = (hash ^ (t as u64 * 0xA24B_AED4_963E_E407)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                ((h >> 40) as f64 / f64::from(1 << 24)) * 4.0
            })
            .collect();
        let total = raw.iter().map(|l| l.exp()).sum::<f64>().ln();
        raw.into_iter().map(|l| l - total).collect()
    }
}

type Answer = (Vec<Token>, f64);

fn tokens(marks: &[Mark]) -> Vec<Token> {
    marks.iter().map(|m| m.token).collect()
}

fn run(model: &Model, rules: Rules) -> Vec<Answer> {
    let mut search: Search<()> = Search::new(rules);
    loop {
        let rows: Vec<Vec<(Token, f64)>> = search
            .live
            .iter()
            .map(|beam| {
                let mut row: Vec<(Token, f64)> = (0..).zip(model.logs(&tokens(&beam.marks))).collect();
                row.sort_by(|a, b| b.1.total_cmp(&a.1));
                row.truncate(search.row_size());
                row
            })
            .collect();
        let round = search.absorb(&rows, |t| t == 0, |_| (), |()| ());
        let mut live: Vec<Vec<Token>> = search.live.iter().map(|b| tokens(&b.marks)).collect();
        live.sort();
        live.dedup();
        assert_eq!(live.len(), search.live.len(), "two living beams are equal");
        assert_eq!(round.parents.len(), search.live.len());
        if round.done {
            break;
        }
    }
    search.end(|_| (), |()| ());
    search.ended.iter().map(|e| (tokens(&e.marks), e.score)).collect()
}

/// Every answer that there is, with its score, best first.
fn enumerate(model: &Model, rules: Rules) -> Vec<Answer> {
    let mut all: Vec<Answer> = Vec::new();
    let mut open: Vec<(Vec<Token>, f64)> = vec![(Vec::new(), 0.0)];
    for length in 1..=rules.longest {
        let mut next = Vec::new();
        for (before, sum) in open {
            for (token, log) in (0..).zip(model.logs(&before)) {
                let score = |sum: f64| sum / (length as f64).powf(rules.alpha);
                if token == 0 {
                    all.push((before.clone(), score(sum + log)));
                } else {
                    let mut longer = before.clone();
                    longer.push(token);
                    if length == rules.longest {
                        all.push((longer, score(sum + log)));
                    } else {
                        next.push((longer, sum + log));
                    }
                }
            }
        }
        open = next;
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// Beam search as the words say it, over plain lists.
fn plainly(model: &Model, rules: Rules) -> Vec<Answer> {
    let b = rules.width;
    let score = |sum: f64, length: usize| sum / (length as f64).powf(rules.alpha);
    let mut live: Vec<(Vec<Token>, f64)> = vec![(Vec::new(), 0.0)];
    let mut ended: Vec<Answer> = Vec::new();
    let best = |ended: &mut Vec<Answer>| {
        ended.sort_by(|a, b| b.1.total_cmp(&a.1));
        ended.truncate(b);
    };
    let mut decided = false;
    for length in 1..=rules.longest {
        let mut all: Vec<(Vec<Token>, f64)> = Vec::new();
        for (before, sum) in &live {
            for (token, log) in (0..).zip(model.logs(before)) {
                all.push(([before.as_slice(), &[token]].concat(), sum + log));
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(2 * b);
        for (text, sum) in all.iter().take(b).filter(|(text, _)| text.last() == Some(&0)) {
            ended.push((text[..text.len() - 1].to_vec(), score(*sum, length)));
        }
        best(&mut ended);
        live = all.into_iter().filter(|(text, _)| text.last() != Some(&0)).take(b).collect();
        if live.is_empty() {
            break;
        }
        let full = ended.len() >= b;
        let worst = ended.last().map_or(f64::NEG_INFINITY, |e| e.1);
        let hope = match rules.stopping {
            EarlyStopping::Never if rules.alpha > 0.0 => score(live[0].1, rules.longest),
            _ => score(live[0].1, length),
        };
        let over = match rules.stopping {
            _ if b == 1 => full,
            EarlyStopping::First => full,
            _ => full && hope <= worst,
        };
        if over {
            decided = true;
            break;
        }
    }
    let length = live.first().map_or(1, |l| l.0.len());
    if !decided {
        ended.extend(live.into_iter().map(|(text, sum)| (text, score(sum, length))));
    }
    best(&mut ended);
    ended
}

fn same(a: &[Answer], b: &[Answer]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.0 == y.0 && (x.1 - y.1).abs() < 1e-9)
}

fn rules() -> impl Strategy<Value = Rules> {
    (1usize..9, -2.0f64..2.0, 0usize..3, 1usize..6).prop_map(|(width, alpha, stopping, longest)| Rules {
        width,
        alpha,
        stopping: EarlyStopping::ALL[stopping],
        longest,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn it_is_the_plain_search(tokens in 2usize..7, seed: u64, rules in rules()) {
        let model = Model { tokens, seed };
        let (found, plain) = (run(&model, rules), plainly(&model, rules));
        prop_assert!(same(&found, &plain), "{found:?}\n{plain:?}");
    }

    #[test]
    fn wide_enough_it_is_every_answer(tokens in 2usize..5, seed: u64, alpha in -2.0f64..2.0, longest in 1usize..5) {
        let model = Model { tokens, seed };
        let rules = Rules { width: 700, alpha, stopping: EarlyStopping::Never, longest };
        let (found, all) = (run(&model, rules), enumerate(&model, rules));
        prop_assert!(same(&found, &all[..found.len()]), "{found:?}\n{all:?}");
        prop_assert_eq!(found.len(), all.len());
    }

    #[test]
    fn one_beam_is_greedy(tokens in 2usize..7, seed: u64, alpha in -2.0f64..2.0, stopping in 0usize..3) {
        let model = Model { tokens, seed };
        let stopping = EarlyStopping::ALL[stopping];
        let found = run(&model, Rules { width: 1, alpha, stopping, longest: 12 });
        let mut greedy: Vec<Token> = Vec::new();
        while greedy.len() < 12 {
            let logs = model.logs(&greedy);
            let best = (0..tokens).max_by(|a, b| logs[*a].total_cmp(&logs[*b])).unwrap();
            if best == 0 {
                break;
            }
            greedy.push(Token::try_from(best).unwrap());
        }
        prop_assert_eq!(&found[0].0, &greedy);
    }

    #[test]
    fn what_is_kept_with_an_answer_comes_back(tokens in 2usize..7, seed: u64, rules in rules()) {
        let model = Model { tokens, seed };
        let mut search: Search<u32> = Search::new(rules);
        let held = std::cell::RefCell::new(std::collections::HashSet::new());
        let mut n = 0;
        let mut keep = |_| { n += 1; held.borrow_mut().insert(n); n };
        loop {
            let rows: Vec<Vec<(Token, f64)>> = search.live.iter().map(|b| {
                let mut row: Vec<(Token, f64)> = (0..).zip(model.logs(&super::tests::tokens(&b.marks))).collect();
                row.sort_by(|a, b| b.1.total_cmp(&a.1));
                row
            }).collect();
            if search.absorb(&rows, |t| t == 0, &mut keep, |k| { held.borrow_mut().remove(&k); }).done {
                break;
            }
        }
        search.end(&mut keep, |k| { held.borrow_mut().remove(&k); });
        let kept: std::collections::HashSet<u32> = search.ended.iter().map(|e| e.kept).collect();
        prop_assert_eq!(kept, held.into_inner());
    }
}
