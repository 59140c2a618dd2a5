"""One sentence of help for every metric and flag that a page shows."""

from collections.abc import Mapping

from markupsafe import Markup

METRICS: Mapping[str, tuple[str, str]] = {
    "time": (
        "Time",
        "Median of all timed calls in all processes, in milliseconds; less is better.",
    ),
    "ratio": (
        "Time over the baseline",
        "Its time divided by that of the baseline, which took turns with it in the same process; "
        "the 95 % interval is over processes, and below 1 is faster.",
    ),
    "time_ratio": (
        "Time ratio",
        "The candidate's time divided by the base's; below 1 the candidate is faster. "
        "The interval holds the true ratio in 95 % of cases.",
    ),
    "training_verdict": (
        "Verdict on training",
        "Whether the perplexity after training is the same within 0.5 %, by paired seeds; "
        "undecided where the seeds do not tell.",
    ),
    "perplexity_ratio": (
        "Perplexity over the reference's",
        "Both trained from the same bits on the same batches, seed by seed; the 95 % interval is "
        "over seeds, and below 1 is better.",
    ),
    "training_curve": (
        "Curve",
        "How far the loss curve goes from the reference's: inside what rounding alone makes, "
        "beyond it, or beyond what other seeds make.",
    ),
    "training_speed": (
        "Tokens per second",
        "Tokens of whole training steps in a second, median over seeds; more is better.",
    ),
    "loss_share": ("Share of the loss", "Part of a step's time that the loss takes."),
    "training_peak": ("Peak", "Most memory of the device in a step, model and optimizer included."),
    "validation_loss": (
        "Validation loss",
        "Loss on text that was not trained on, by torch's own loss in float32 for everybody.",
    ),
    "nonfinite": ("Steps not finite", "Steps whose loss or gradients held NaN or infinity."),
    "claim": (
        "Verdict on a claim",
        "What the stored results say of it by a rule that was written before they were looked at; "
        "an interval that reaches over the rule's limit decides nothing.",
    ),
    "verdict": (
        "Verdict",
        "Which of the two is faster, if any, where both were measured in turns by a job of kind "
        "compare; without such a job there is none.",
    ),
    "detectable": (
        "Detectable effect",
        "The smallest slowdown that nine in ten such comparisons find; a smaller one may hide.",
    ),
    "workspace": (
        "Workspace",
        "Peak memory of a step beyond what was there before it and its results; less is better.",
    ),
    "floor": (
        "Floor ratio",
        "Its time divided by that of the bare matrix products which the pass cannot do without, "
        "timed in the same process; 1 is the floor.",
    ),
    "grade": (
        "Error grade",
        "The worst output's error over torch's own in the same dtype: exact up to 1.1, fair up to "
        "1.5, coarse up to 4, poor above. Coarse and poor never count as a win.",
    ),
    "worst_error": (
        "Worst error",
        "The largest error of any output (loss, dx, dW, db) divided by the error that torch itself "
        "makes in this dtype; 1 is as exact as torch.",
    ),
    "relative_l2": (
        "Relative L2",
        "Norm of the difference to a float64 reference, divided by the norm of that reference; "
        "less is better.",
    ),
    "max_abs": (
        "Largest absolute error",
        "The largest difference of a single number to the float64 reference; less is better.",
    ),
    "scale": (
        "Best-fit scale",
        "The factor that brings the output nearest to the reference; 1 means that nothing is "
        "scaled wrongly.",
    ),
    "bias": (
        "Bias",
        "The mean difference to the reference: errors that do not cancel out. Nearer to 0 is "
        "better.",
    ),
    "same_bits": (
        "Same bits",
        "Whether the same call gave the very same bits again: within one process, and across "
        "processes.",
    ),
    "outcome": (
        "Outcome",
        "How the measurement ended: ok, out of memory, wrong, unsupported, timed out, failed or "
        "cancelled. An outcome without a time is an answer too.",
    ),
    "flags": (
        "Flags",
        "What to know about how a result was measured. A flag drops nothing; suspect alone keeps "
        "a time from winning.",
    ),
    "front": (
        "On the front",
        "No contender with an error that counts is at most as slow and needs at most as much "
        "memory.",
    ),
    "held": ("Held", "Memory kept between forward and backward; less is better."),
    "tokens_per_s": ("Tokens per second", "Tokens of the case over its time; more is better."),
    "compile": (
        "Compile",
        "Seconds until the first call was done, beyond what a call takes; never part of the time.",
    ),
    "samples": ("Samples", "Timed calls that the numbers rest on; more narrows the interval."),
    "drift": (
        "Drift of the same code",
        "Time of the same baseline on the same case, each time divided by the median of all; "
        "what moves here is the machine and not a kernel.",
    ),
}
"""By key: the metric's name and its sentence."""

FLAGS: Mapping[str, str] = {
    "throttled": "the GPU slowed down for heat or a hardware limit",
    "power_capped": "the power limit held the clock down in over a fifth of the readings",
    "noisy": "the samples or the visits spread more than usual",
    "drift": "its time rises or falls from visit to visit by more than 1 %",
    "not_steady": "warm-up ended before time, power, clock and temperature held still",
    "low_n": "fewer than 20 samples",
    "launch_bound": "a call under 0.2 ms: launching may take longer than the work",
    "compile_in_timing": "something was compiled while samples were taken",
    "alloc_retry": "the allocator had to free its cache and try again",
    "foreign_process": "another process used the GPU",
    "multi_modal": "the processes fall into two groups",
    "memory_nondeterministic": "three readings of memory did not agree to the byte",
    "suspect": "faster than the device's own products allow: something was not done or not timed",
    "gradients_in_forward": "makes gradients in its forward, which is no forward alone",
    "interpreted": "run by Triton's interpreter: checked, without a speed",
    "cpu": "measured on a CPU; never drawn beside a GPU's",
}


def why(key: str) -> Markup:
    """A small button that opens a metric's sentence; the sentence is also its tooltip."""
    name, sentence = METRICS[key]
    return Markup(
        '<button type="button" class="why" popovertarget="why-{}" title="{}" '
        'aria-label="What is {}?">?</button>'
    ).format(key, sentence, name[0].lower() + name[1:])


def flag_help(flag: object) -> str:
    """What a flag means; empty for one that is not known."""
    return FLAGS.get(str(flag), "")
