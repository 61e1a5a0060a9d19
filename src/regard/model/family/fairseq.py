"""The tensor names that fairseq gave to encoder-decoder layers. BART, Marian and M2M100 inherited them."""

from regard.model.weight_map import Rule, both


def layers(side: str, prefix: str = "") -> tuple[Rule, ...]:
    theirs, ours = f"{prefix}{side}.layers.{{i}}", f"{side}.{{i}}"
    rules = (
        both(f"{theirs}.self_attn.q_proj", f"{ours}.attention.W_q"),
        both(f"{theirs}.self_attn.k_proj", f"{ours}.attention.W_k"),
        both(f"{theirs}.self_attn.v_proj", f"{ours}.attention.W_v"),
        both(f"{theirs}.self_attn.out_proj", f"{ours}.attention.W_o"),
        both(f"{theirs}.self_attn_layer_norm", f"{ours}.norm_1"),
        both(f"{theirs}.fc1", f"{ours}.mlp.up"),
        both(f"{theirs}.fc2", f"{ours}.mlp.down"),
        both(f"{theirs}.final_layer_norm", f"{ours}.norm_2"),
        both(f"{prefix}{side}.layer_norm", f"{side}.final_norm"),
    )
    if side == "encoder":
        return rules
    return (
        *rules,
        both(f"{theirs}.encoder_attn.q_proj", f"{ours}.cross.W_q"),
        both(f"{theirs}.encoder_attn.k_proj", f"{ours}.cross.W_k"),
        both(f"{theirs}.encoder_attn.v_proj", f"{ours}.cross.W_v"),
        both(f"{theirs}.encoder_attn.out_proj", f"{ours}.cross.W_o"),
        both(f"{theirs}.encoder_attn_layer_norm", f"{ours}.norm_cross"),
    )
