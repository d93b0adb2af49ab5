"""Recognises what is said in a recording of 16-bit samples at 16 kHz, with pocketsphinx and its default models.

    recognise.py RECORDING

The models are where POCKETSPHINX_PATH says.
"""

import sys
import wave

from pocketsphinx import Decoder

decoder = Decoder(samprate=16000, loglevel="FATAL")
with wave.open(sys.argv[1]) as recording:
    samples = recording.readframes(recording.getnframes())
decoder.start_utt()
decoder.process_raw(samples, full_utt=True)
decoder.end_utt()
print(decoder.hyp().hypstr if decoder.hyp() else "")
