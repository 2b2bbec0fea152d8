"""What can go wrong in a simulated cloud, drawn at random, by the keys of its chaos."""

from __future__ import annotations

from hypothesis import strategies as st

CHANCES = st.sampled_from([0.3, 0.7, 1.0])
CALL_FAULTS = st.sampled_from(["lost", "dropped", "late", "errors", "errorsAfter", "unavailable", "rateLimits"])
TROUBLES = st.one_of(
    st.fixed_dictionaries(
        {"create": st.dictionaries(CALL_FAULTS, CHANCES, min_size=1, max_size=2), "lateBy": st.sampled_from([5, 30])}
    ),
    st.fixed_dictionaries({"delete": st.dictionaries(CALL_FAULTS, CHANCES, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"list": st.fixed_dictionaries({"unavailable": CHANCES})}),
    st.fixed_dictionaries({"halfPages": CHANCES}),
    st.fixed_dictionaries({"stock": st.fixed_dictionaries({"small": st.integers(0, 4)})}),
    st.fixed_dictionaries({"quota": st.integers(0, 4)}),
    st.fixed_dictionaries({"neverBoots": CHANCES}),
    st.fixed_dictionaries({"dies": CHANCES, "diesAfter": st.sampled_from([5, 50])}),
    st.fixed_dictionaries({"ignoresDelete": CHANCES}),
    st.fixed_dictionaries({"losesTags": CHANCES, "losesTagsAfter": st.sampled_from([0, 50])}),
    st.just({"hang": True}),
    st.fixed_dictionaries({"shortLists": CHANCES}),
)
